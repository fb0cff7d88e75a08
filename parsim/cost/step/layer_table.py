"""The costs of every kind of layer of a model, for all plans of a table.

Arrays have shape (B,), one entry a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from parsim.arrays import Array, Columns
from parsim.cost.hosts import between_microbatches, slowest_host
from parsim.cost.job import Job
from parsim.cost.layer.composed import composed_kept
from parsim.cost.layer.kept.activations import kept_bytes, kept_policy, offloaded_bytes, whole_bytes
from parsim.cost.layer.kept.policy import KeptPolicy
from parsim.cost.layer.layers import LayerCoster, dropped_bytes, repeated_more
from parsim.cost.layer.passes import LayerCost, Pass
from parsim.model.layer import Layer
from parsim.plan import PlanTable, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTable(Columns):
    """Costs of layers for all plans: one entry per kind of block, and those of the outer layers.

    `before` and `behind` are the outer layers of either end together (embedding, head).
    `deeper` is what backward repeats more of a layer that is recomputed as a whole, and `dropped`
    the bytes that such a layer keeps less, both 0 where no plan recomputes a number of layers.
    `moved` are the bytes that a layer of each kind moves to the host where a plan says so.
    `slowest_host` (B,) is the time of a tensor-parallel group's slowest host over the mean one's.
    `pause` (B,) are seconds of a forward, or of a backward, in which the device waits for the host
    to take up the next micro-batch, `calls` those that the host needs for it beside the device.
    """

    kinds: tuple[LayerCost, ...]
    recomputed: tuple[Pass, ...]
    deeper: tuple[Pass, ...]
    kept: tuple[Array, ...]
    dropped: tuple[Array, ...]
    whole: tuple[Array, ...]
    moved: tuple[Array, ...]
    before: LayerCost
    behind: LayerCost
    before_kept: Array
    behind_kept: Array
    slowest_host: Array
    pause: Array
    calls: Array

    @classmethod
    def of(cls, job: Job, table: PlanTable) -> LayerTable:
        """Price every kind of layer for every plan."""
        coster, model = LayerCoster(job, table), job.model
        costs = tuple(coster.cost(layer) for layer in model.kinds)
        policy = kept_policy(job.software)
        pause, calls = between_microbatches(job, table)
        recomputed, deeper = _repeated(job, table, costs, policy)
        kept = tuple(kept_bytes(layer, table, policy) for layer in model.kinds)
        return cls(
            kinds=costs,
            recomputed=recomputed,
            deeper=deeper,
            kept=kept,
            dropped=tuple(
                dropped_bytes(job.software, layer, each, table)
                for layer, each in zip(model.kinds, kept, strict=True)
            ),
            whole=tuple(whole_bytes(layer, table, policy) for layer in model.kinds),
            moved=tuple(_moved(job, layer, table, policy) for layer in model.kinds),
            before=_together(coster, model.before),
            behind=_together(coster, model.behind),
            before_kept=_kept_together(table, model.before),
            behind_kept=_kept_together(table, model.behind),
            slowest_host=slowest_host(job, table),
            pause=pause,
            calls=calls,
        )


def _repeated(
    job: Job, table: PlanTable, costs: Sequence[LayerCost], policy: KeptPolicy
) -> tuple[tuple[Pass, ...], tuple[Pass, ...]]:
    """What backward repeats of each kind of layer, and what more of one recomputed as a whole."""
    share = repeated_share(job, table)
    recomputed = [cost.recomputed(table, policy.half_products).scaled(share) for cost in costs]
    deeper = (
        repeated_more(cost.forward.scaled(share), again, table)
        for cost, again in zip(costs, recomputed, strict=True)
    )
    return tuple(recomputed), tuple(deeper)


def _moved(job: Job, layer: Layer, table: PlanTable, policy: KeptPolicy) -> Array:
    """Bytes that a layer moves to the host; none of stages that keep only what enters them."""
    if not (table.offload_layers > 0).any():
        return np.zeros(len(table))
    moved = offloaded_bytes(layer, table, policy)
    if job.software.eager and not table.common.offload_modules:
        moved = moved + composed_kept(layer, table, job.software)
    gone = job.software.checkpoints_stages & (table.recompute == Recompute.FULL)
    return np.where((table.offload_layers > 0) & ~gone, moved, 0.0)


def repeated_share(job: Job, table: PlanTable) -> Array | float:
    """Share of micro-batches that are recomputed: all, or all but the last one of several, (B,).

    Source: torchgpipe's `checkpoint='except_last'`, whose last micro-batch goes back at once.
    Leaves out: that it is the last one's backward which is shorter, not every one's a little.
    """
    if job.software.recomputes_last:
        return 1.0
    count = np.asarray(table.num_microbatches, dtype=np.float64)
    return np.where(count > 1.0, (count - 1.0) / count, 1.0)


def _together(coster: LayerCoster, layers: Sequence[Layer]) -> LayerCost:
    """Cost of the outer layers of one end, one after another."""
    costs = [coster.cost(layer) for layer in layers]
    return reduce(LayerCost.plus, costs) if costs else LayerCost.zero(len(coster.table))


def _kept_together(table: PlanTable, layers: Sequence[Layer]) -> Array:
    return np.asarray(sum((whole_bytes(layer, table) for layer in layers), np.zeros(len(table))))
