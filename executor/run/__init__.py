"""The command `python -m executor`: checks a scenario's plan, then runs and compares it.

In come the arguments that `parsim.launch` writes; out go `run.json`, the measured and the predicted
timeline, the curve of the loss, checkpoints, and a summary.
"""
