"""Pipelines whose every action is a task: a plan with stages of its own comes in, times leave."""
