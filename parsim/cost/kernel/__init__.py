"""Seconds of single kernels.

A device, a precision and arrays of shapes enter (m, n, k; FLOPs; bytes); arrays of seconds leave,
corrected by what a calibration measured, and by what compute loses beside a collective.
"""
