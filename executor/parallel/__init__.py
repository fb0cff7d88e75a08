"""Splits a stage over the ranks of a mesh: data and tensor parallelism.

The order matters: first `apply_tensor_parallel`, then `apply_data_parallel`.
"""
