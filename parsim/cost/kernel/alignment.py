"""What a matrix product loses where the rows of its operands do not start at multiples of 16 bytes.

A thread of a GPU loads 16 bytes at a time and tensor cores are fed so; rows that start between have
to be loaded in pieces. The sides that count are those along which the operands lie in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2

import numpy as np

from parsim.arrays import Array, Num
from parsim.cluster.hardware import Device

LOAD = 16.0
"""Bytes of the widest load of a thread."""
WIDEST = 2.0
"""Values of more bytes are not multiplied on tensor cores, or were not measured."""


def aligned_bytes(sides: Sequence[Num], value: float) -> Array:
    """The largest of 16, 8, 4, 2 and 1 bytes that divides the rows of all sides.

    Args:
        sides: values along which operands and result lie in memory, arrays that broadcast.
        value: bytes of one of them; scales that lie apart do not count.
    """
    value, size = 2.0 ** floor(log2(value)), np.asarray(LOAD)
    for side in sides:
        row = np.ceil(np.asarray(side, dtype=np.float64)) * value
        step = np.full(row.shape, LOAD)
        while np.any(uneven := (np.mod(row, step) > 0.0) & (step > 1.0)):
            step = np.where(uneven, step / 2.0, step)
        size = np.minimum(size, step)
    return np.asarray(size)


def aligned_share(device: Device, sides: Sequence[Num], value: float) -> Array:
    """The share of a product's usual rate that the alignment of its rows leaves.

    1 at 16 bytes, `gemm_unaligned` at 8 and 4, `gemm_odd` below.

    Source: sweeps of 1,000 products on A100 and V100 (EleutherAI/cookbook, after arXiv:2401.14489),
    `parsim/validation/data/kernels/gemm_alignment_cookbook.csv`: the rate has these three steps and
    does not depend on which power of two beyond 16 bytes divides a side.
    Leaves out: which operand it is (0.55 to 0.67 on A100), CPUs, values of more than 2 bytes.
    """
    if device.gemm_unaligned == device.gemm_odd == 1.0 or value > WIDEST:
        return np.ones(np.shape(sides[0]))
    size = aligned_bytes(sides, value)
    share = np.where(size >= 4.0, device.gemm_unaligned, device.gemm_odd)
    return np.where(size >= LOAD, 1.0, share)
