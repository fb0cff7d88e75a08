"""Runs of a strategy once more, step by step.

The log of arrivals enters; the weights it leads to, and whether they are the run's, leave.
"""
