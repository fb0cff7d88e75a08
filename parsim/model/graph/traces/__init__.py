"""Reads what torch's profiler recorded of a training step into a graph of measured layers."""
