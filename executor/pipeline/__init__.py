"""Runs a schedule's actions on the ranks of a pipeline group with torch's interpreter.

In come a `parsim.schedule.Schedule`, the stages of this rank and a batch; out go losses and
gradients, or an error before anything starts where the schedule would hang or train wrongly.
"""
