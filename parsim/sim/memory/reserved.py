"""What the caching allocator takes from the device for the tensors that it hands out.

    context  the driver's context with NCCL, outside the allocator   Software.context_memory
    reserved = allocated x (1 + share) + uncached, in segments of 2 MiB    Software.reserved_share
    allocated, uncached                                           parsim/sim/memory/added_peaks.py

PyTorch rounds a tensor to 512 B; tensors up to 1 MiB share segments of 2 MiB, those up to 10 MiB
segments of 20 MiB, larger ones get segments rounded to 2 MiB, and what is left of a segment is
split off only above 1 MiB. With tensors of 10 MiB and more, rounding is below 0.1 %; most of the
difference is cached segments into which the next tensor does not fit. So it is with the copies that
an optimizer's update makes of a rank's gradients: each is a tensor of gigabytes, while what a
backward leaves cached are segments of one activation each, which are not merged.

Source: the allocator's constants (c10/cuda/CUDACachingAllocator); the share is the mean over 19
distinct B200 runs, 2.8 to 9.3 %, with a standard deviation of 2.0 points.
Leaves out: expandable segments, and that the allocator frees its cache and tries again before it
gives up, so that a plan whose reserved memory exceeds the device may still run, slower. That is
why `uncached` copies count in what is reserved and not in whether a plan fits: all that a backward
has cached is free at the update. Small copies that a cached segment does hold are not told apart.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.software import Software
from parsim.units import MIB

SEGMENT = 2.0 * MIB
"""Bytes to which large segments are rounded."""

PRESSED = 0.9
"""Share of the device's memory above which a run may free its cache and try again."""


def reserved_bytes(software: Software, allocated: Array, uncached: Array | float = 0.0) -> Array:
    """Peak of reserved memory for a peak of allocated memory, bytes.

    Args:
        software: whose allocator reserves it.
        allocated: the peak of allocated memory, bytes.
        uncached: bytes that are allocated when less is, and fit into nothing that is cached.
    """
    if software.reserved_share == 0.0:
        return np.asarray(allocated)
    needed = allocated * (1.0 + software.reserved_share) + uncached
    return np.asarray(np.ceil(needed / SEGMENT) * SEGMENT)
