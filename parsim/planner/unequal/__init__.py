"""Pipelines whose stages have replicas of their own: the best equal plans come in, others leave."""
