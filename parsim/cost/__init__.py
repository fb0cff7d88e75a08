"""Seconds of operators, collectives and optimizer steps; bytes on a rank. Knows no schedules.

A job (model, cluster, software) and a table of B plans enter; arrays of seconds and bytes leave,
one entry a plan: of kernels (`kernel`), of collectives (`collective`), of layers (`layer`), and of
stages and what follows the pipeline (`step`). What a calibration left open leaves as spreads.
"""
