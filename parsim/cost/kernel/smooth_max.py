"""The larger of two times, rounded where both matter: no kernel overlaps its limits perfectly."""

from __future__ import annotations

from math import log2

import numpy as np

from parsim.arrays import Array, Num

TINY = 1e-300
"""Divides where both terms are 0."""


def smooth_max(a: Num, b: Num, power: int) -> Array:
    """(a^p + b^p)^(1/p) for p = 2, 4, 8 ..: a maximum whose corner is rounded.

    By squares and roots, as powers cost ten times as much; scaled by the larger term so that small
    seconds do not underflow.
    """
    high = np.maximum(a, b)
    share = np.minimum(a, b) / np.maximum(high, TINY)
    doublings = round(log2(power))
    for _ in range(doublings):
        share = share * share
    total = 1.0 + share
    for _ in range(doublings):
        total = np.sqrt(total)
    return np.asarray(high * total)
