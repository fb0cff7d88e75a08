"""Kinds of collectives and their algorithms, and the bytes that a rank sends in each."""

from __future__ import annotations

from typing import Literal

import numpy as np

from parsim.arrays import Array

CollectiveKind = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"
]
Algorithm = Literal["ring", "tree", "nvls", "nvls_tree", "collnet", "pat", "p2p"]


def wire_share(kind: CollectiveKind, ranks: Array) -> Array:
    """Bytes that every rank sends, over S: nccl-tests' busbw over algbw."""
    part = (ranks - 1.0) / np.maximum(ranks, 1.0)
    if kind in ("broadcast", "reduce"):
        return np.ones_like(ranks)
    return np.asarray(2.0 * part if kind == "all_reduce" else part)
