"""Seconds and bytes of one layer.

A layer's operators and a table of plans enter. Their kernels and messages leave as lists, their
sums as seconds of forward, backward and what is repeated, and the bytes kept for backward.
"""
