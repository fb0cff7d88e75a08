"""What was measured of devices and systems: kernels, whole layers, collectives.

Blocks of a calibrated device's or system's file come in, or tables of the catalog; points, curves
and how far they reach leave.
"""
