"""Runs a plan with torch: the command behind `python -m executor`, one process for each rank.

In come a scenario's file, its overrides and how to run them; out go what the ranks measured:
documents, timelines, checkpoints, or a catalog file with the constants of this machine. Nothing
in `parsim` imports this package: `parsim.launch` starts its commands by name.
"""
