"""Runs a plan's schedule on devices; see `python -m executor`."""
