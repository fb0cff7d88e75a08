"""Seconds of operators, collectives and optimizer steps; bytes on a rank. Knows no schedules.

Every function works on arrays of plans: a column of B plans in, B seconds or bytes out.
"""
