"""Which cases are measured: those that make a step's predicted time surer per second spent.

In come candidates with their weights in the steps of the target plans, a time, and what an earlier
calibration knows; out goes a choice in the order of measuring.
"""
