"""The command `python -m executor.calibration`: measures this machine for the simulator.

In come the scenarios that it should serve, seconds to spend, and an earlier calibration; out go a
catalog file with fitted constants, curves and residuals, and a document that says how sure it is.
"""
