"""The command `python -m executor.suite OUT`: calibrates, predicts, runs and compares.

In come a folder and a time budget; out go calibrations, runs and predictions of all cases that fit
this machine, and a report of the errors with pictures.
"""
