"""Wires on which shards travel beside compute: gathers and reductions of layers or of buckets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import num_buckets
from parsim.cost.kernel.residuals import measured_factor
from parsim.cost.step.stages import (
    gathered_again,
    over_kinds,
    rank_experts,
    rank_parameters,
)
from parsim.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Seconds of ZeRO-3's gathers or reduce-scatters in one pass.

    `layers` (K, S, B) for a layer of each kind, `root` and `whole` (S, B) for the parameters that
    are in no layer (embedding and head) and for all.
    """

    layers: Array
    root: Array
    whole: Array

    @classmethod
    def of(
        cls,
        data: DataParallel,
        collective: Callable[[Array, Array | None], Array],
        calls: int,
        counts: Array,
        parameters: Array,
        model: Model,
    ) -> Wire:
        """So many collectives of a layer, and one of the root.

        `collective` gives the seconds of one from the parameters that it carries; `counts` (S, K)
        or (S, K, B) are a stage's layers of each kind of the `model`, `parameters` (S, B) its own
        on a rank.
        """
        on = data.table.zero_stage == 3
        kinds = np.stack([rank_parameters(layer, data.table) for layer in model.kinds])
        experts = np.stack([rank_experts(layer, data.table) for layer in model.kinds])
        layers = np.where(on, calls * collective(kinds / calls, experts / calls), 0.0)
        outside = np.maximum(parameters - over_kinds(counts, kinds), 0.0)
        root = np.where(on & (outside > 0.0), collective(outside, None), 0.0)
        each = np.broadcast_to(layers[:, None, :], (len(kinds), *root.shape))
        return cls(layers=each, root=root, whole=over_kinds(counts, layers) + root)

    def repeated(self, again: Array, counts: Array) -> Wire:
        """With the shares `again` (K, B) of layers' collectives a second time."""
        layers = self.layers * (1.0 + again[:, None, :])
        more = over_kinds(counts, layers[:, 0] - self.layers[:, 0])
        return Wire(layers=layers, root=self.root, whole=self.whole + more)

    def scaled(self, factor: Array | float) -> Wire:
        """All of them multiplied."""
        return Wire(layers=self.layers * factor, root=self.root * factor, whole=self.whole * factor)


class BucketWire(NamedTuple):
    """ZeRO-2's reduce-scatters of one backward: their buckets, and seconds of all, (S, B) each.

    `modelled` is without what was measured of such passes, `whole` with it; both are 0 in others.
    """

    buckets: Array
    modelled: Array
    whole: Array

    @classmethod
    def of(cls, data: DataParallel, parameters: Array, experts: Array | None) -> BucketWire:
        """Builds it for stages with so many parameters, so many of experts among them."""
        count = num_buckets(data, parameters, experts)
        routed = None if experts is None else experts / count
        seconds = count * data.scatter(parameters / count, routed)
        modelled = np.where(data.table.zero_stage == 2, seconds, 0.0)
        factor = measured_factor(data.job.system.residuals, "sharded_backward", modelled)
        return cls(count, modelled, modelled * factor)


class LayerWire(NamedTuple):
    """ZeRO-3's gathers of a forward, gathers and reduce-scatters of a backward.

    `modelled_forward` and `modelled_backward` (S, B) are the seconds of all of them, without what
    was measured of such passes.
    """

    ahead: Wire
    gather: Wire
    scatter: Wire
    modelled_forward: Array
    modelled_backward: Array

    @classmethod
    def of(cls, data: DataParallel, counts: Array, parameters: Array, trained: Array) -> LayerWire:
        """Builds it for stages with so many layers of each kind and parameters.

        All are gathered, gradients are those of the `trained`. What is scattered with one
        micro-batch of several counts as much less in each.
        """
        measured, stack, model = data.job.system.residuals, data.job.software, data.job.model
        first = Wire.of(data, data.gather, stack.gathers_per_layer, counts, parameters, model)
        calls, part = stack.scatters_per_layer, model.updated
        scatter = Wire.of(data, data.scatter, calls, counts, trained, part).scaled(data.scattering)
        again = None if stack.reuse_distance is None else _again(data)
        gather = first if again is None else first.repeated(again, counts)
        gathered, both = first.whole, gather.whole + scatter.whole
        slower = measured_factor(measured, "sharded_backward", both)
        ahead = first.scaled(measured_factor(measured, "sharded_forward", gathered))
        return cls(ahead, gather.scaled(slower), scatter.scaled(slower), gathered, both)


def _again(data: DataParallel) -> Array:
    """The share of each kind of layer that a backward gathers twice, (K, B)."""
    job, table = data.job, data.table
    shares = [
        gathered_again(job, table, layer) / np.maximum(rank_parameters(layer, table), 1.0)
        for layer in job.model.kinds
    ]
    return np.stack(shares)
