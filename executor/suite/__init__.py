"""The hardware suite: calibrate, predict, run, compare; see `python -m executor.suite --help`."""
