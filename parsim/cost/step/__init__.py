"""Seconds and bytes of the stages of one step.

A job and plans with the same stages enter; durations of the schedule's actions, hops, gradient
buckets and the tail of the step leave (`StepCosts`), and the list of a stage's messages.
"""
