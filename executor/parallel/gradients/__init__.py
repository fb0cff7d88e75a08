"""Gradients on their way from backward to the update: split tensors, flat buffers, reduction.

In come parameters, the groups of ranks that hold the same ones, and what backward leaves; out go
averaged gradients, whole or a share of each buffer.
"""
