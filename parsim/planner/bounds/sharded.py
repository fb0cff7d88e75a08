"""Collectives inside passes of ZeRO-2 and 3, and how much of them can run beside compute.

    compute |   w    | layer 1 | layer 2 |  w  |      the first gather has nothing before it, the
    dp      | g1     |   g2    |  r1  |  r2    |      last reduction nothing behind it: both show

A stage of few layers hides little: of one layer or one bucket, nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Num
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.static_bytes import Weights
from parsim.cost.step.shard_wires import BucketWire, LayerWire, Wire
from parsim.planner.bounds.parts import TellingParts


class Inside(NamedTuple):
    """Seconds of the collectives of a stage's pass: all, and those that compute can be beside.

    The latter at the most. (R, C) each, or 0.0.
    """

    whole: Num
    beside: Num

    def plus(self, other: Inside) -> Inside:
        """These and others, of which a plan has one or the other."""
        return Inside(self.whole + other.whole, self.beside + other.beside)


NOTHING = Inside(0.0, 0.0)


def sharded_passes(
    data: DataParallel, parts: TellingParts, weights: Weights, trained: Weights
) -> tuple[Inside, Inside]:
    """What shards add to forward and backward of stages with such weights on a rank."""
    ahead, behind = NOTHING, NOTHING
    if (data.table.zero_stage == 2).any():
        behind = behind.plus(_by_bucket(BucketWire.of(data, *trained)))
    if (data.table.zero_stage == 3).any():
        wire = LayerWire.of(data, parts.counts, weights.parameters, trained.parameters)
        forward, backward = _by_layer(wire, parts)
        ahead, behind = ahead.plus(forward), behind.plus(backward)
    return ahead, behind


def _by_bucket(wire: BucketWire) -> Inside:
    """All buckets but the last can be beside compute."""
    return Inside(wire.whole, wire.whole * (1.0 - 1.0 / np.maximum(wire.buckets, 1.0)))


def _by_layer(wire: LayerWire, parts: TellingParts) -> tuple[Inside, Inside]:
    """All but the root's, the first layer's gather and, behind a backward, the last reduction.

    Embedding and head can be beside those of the layer next to them.
    """
    ahead, gather, scatter = wire.ahead, wire.gather, wire.scatter
    first, last = _shown(ahead, parts), _shown(gather, parts)
    reduced = _shown(scatter, parts)
    first[0] = reduced[0] = last[-1] = 0.0
    both = gather.whole + scatter.whole
    alone = gather.root + scatter.root + last + reduced
    return Inside(ahead.whole, ahead.whole - ahead.root - first), Inside(both, both - alone)


def _shown(wire: Wire, parts: TellingParts) -> Array:
    """The shortest collective of a layer, (R, C); of a stage without layers none."""
    return np.asarray(wire.layers.min(axis=0) * parts.counts.any(axis=1))
