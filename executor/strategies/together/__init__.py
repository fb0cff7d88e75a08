"""Strategies whose ranks hold one model together: each its branches, or its parts of all tensors.

In come the work of a run and where everything is; out goes what is on this rank, trained.
"""
