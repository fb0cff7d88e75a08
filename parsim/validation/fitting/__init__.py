"""Fits of hardware and software constants to a documented minority of the measured steps."""
