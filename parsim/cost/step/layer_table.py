"""The costs of every kind of layer of a model, for all plans of a table, and stages' sums of them.

Arrays have shape (S, B), as in `cost/step/stages.py`; device and host race over every pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from parsim.arrays import Array, Columns, Num, ratio
from parsim.cost.hosts import between_microbatches, slowest_host
from parsim.cost.job import Job
from parsim.cost.kernel.smooth_max import smooth_max
from parsim.cost.layer.composed import composed_kept
from parsim.cost.layer.kept.activations import kept_bytes, kept_policy, offloaded_bytes, whole_bytes
from parsim.cost.layer.kept.policy import KeptPolicy
from parsim.cost.layer.layers import LayerCoster, dropped_bytes, repeated_more
from parsim.cost.layer.passes import LayerCost, Pass
from parsim.cost.step.stages import over_kinds
from parsim.model.layer import Layer
from parsim.plan import PlanTable, Recompute

RACE = 8
"""Norm in which device and host race: the slower one sets the pace, a little more where near."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkTimes:
    """Seconds of one forward or backward per stage, (S, B): whole, exposed, recomputed.

    `exposed` are collectives that nothing hides, repeated ones among them; `recomputed` are kernels
    that backward repeats, and none of its collectives, so that no second is in both. `pace` is the
    whole over the device's seconds: more than 1 where the host is slower.
    """

    time: Array
    exposed: Array
    recomputed: Array
    pace: Array


def forward_times(job: Job, layers: LayerTable, counts: Array) -> ChunkTimes:
    """Forward of one micro-batch on each stage."""
    kinds = [cost.forward for cost in layers.kinds]
    ends = layers.before.forward, layers.behind.forward
    return _chunk(job, layers, stage_pass(kinds, counts, *ends))


def backward_times(
    job: Job, layers: LayerTable, counts: Array, deeper: Pass | None = None
) -> ChunkTimes:
    """Backward of one micro-batch on each stage, recomputation included.

    `deeper` is what stages repeat more because they repeat some layers as a whole (None: none).

    What recomputation makes it longer by is divided as the repeated pass is, into its kernels and
    its exposed collectives; the rest is as if nothing were repeated.
    """
    kinds = [cost.backward for cost in layers.kinds]
    ends = layers.before.backward, layers.behind.backward
    both = [kind.plus(more) for kind, more in zip(kinds, layers.recomputed, strict=True)]
    once = _chunk(job, layers, stage_pass(kinds, counts, *ends))
    total = stage_pass(both, counts, *ends)
    if deeper is not None:
        total = total.plus(deeper)
    whole = _chunk(job, layers, total)
    repeated = repeated_pass(layers, counts, deeper)
    longer = np.maximum(whole.time - once.time, 0.0)
    collectives = longer * repeated.exposed_share
    return replace(whole, exposed=once.exposed + collectives, recomputed=longer - collectives)


def repeated_pass(layers: LayerTable, counts: Array, deeper: Pass | None) -> Pass:
    """What a backward of each stage repeats, (S, B); `deeper` as `backward_times` takes it."""
    nothing = Pass.zero(len(layers.slowest_host))
    repeated = stage_pass(list(layers.recomputed), counts, nothing, nothing)
    return repeated if deeper is None else repeated.plus(deeper)


def whole_layers(layers: LayerTable, again: Array) -> Pass:
    """What repeating some layers as a whole takes beyond what is repeated of the others, (S, B).

    `again` (S, K, B) are those layers of each kind.
    """
    nothing = Pass.zero(len(layers.slowest_host))
    return stage_pass(list(layers.deeper), again, nothing, nothing)


def weight_times(job: Job, layers: LayerTable, counts: Array) -> Array:
    """Seconds of a backward on each stage, (S, B), that are gradients of weights."""
    kinds, nothing = [cost.weights for cost in layers.kinds], Pass.zero(len(layers.slowest_host))
    return raced(job, layers, stage_pass(kinds, counts, nothing, layers.behind.weights))


def stage_pass(parts: list[Pass], counts: Array, first: Pass, last: Pass) -> Pass:
    """A pass through each stage, (S, B), of a layer's of each kind and what stands at the ends."""

    def stack(name: str) -> Array:
        per_kind = np.stack([getattr(part, name) for part in parts])
        rows = over_kinds(counts, per_kind)
        rows[0] += getattr(first, name)
        rows[-1] += getattr(last, name)
        return rows

    return Pass(kernels=stack("kernels"), exposed=stack("exposed"), launches=stack("launches"))


def _chunk(job: Job, layers: LayerTable, total: Pass) -> ChunkTimes:
    time = raced(job, layers, total, layers.calls) + layers.pause
    pace = ratio(time, total.seconds)
    return ChunkTimes(
        time=time, exposed=total.exposed * pace, recomputed=np.zeros_like(time), pace=pace
    )


def raced(job: Job, layers: LayerTable, total: Pass, calls: Num = 0.0) -> Array:
    """Device and host race: the slower one sets a pass's seconds, the norm of both in RACE.

    `calls` are seconds of the host beside its launches. A host that waits for each kernel before it
    launches the next, or computes itself (a CPU, whose launches cost nothing), takes turns with the
    device: the sum of both. Source: CUDA C++ Programming Guide, CUDA_LAUNCH_BLOCKING.
    """
    host = host_seconds(job, layers, total) + calls
    if job.software.blocking_launches or not _launch(job):
        return np.asarray(total.seconds + host)
    return smooth_max(total.seconds, host, RACE)


def host_seconds(job: Job, layers: LayerTable, total: Pass) -> Array:
    """Seconds in which the slowest host of a tensor-parallel group launches a pass, (..., B)."""
    return np.asarray(total.launches * _launch(job) * layers.slowest_host)


def _launch(job: Job) -> float:
    """Host seconds of launching a kernel of this model."""
    each = job.software.launch_of(mixture=job.model.experts is not None)
    return each * job.device.launch_factor


def host_share(job: Job, layers: LayerTable) -> Array:
    """Host seconds of launching a layer's forward over the device's seconds of it, (B,)."""
    first = layers.kinds[0].forward
    return np.asarray(host_seconds(job, layers, first) / np.maximum(first.seconds, 1e-30))
