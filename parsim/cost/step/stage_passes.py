"""Seconds of a forward or a backward of each stage: its layers' passes while device and host race.

Arrays have shape (S, B), as in `cost/step/stages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Num, ratio
from parsim.cost.job import Job
from parsim.cost.kernel.smooth_max import smooth_max
from parsim.cost.layer.passes import Pass
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stages import over_kinds

RACE = 8
"""Norm in which device and host race: the slower one sets the pace, a little more where near."""


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
    return job.software.launch_cost * job.device.launch_factor


def host_share(job: Job, layers: LayerTable) -> Array:
    """Host seconds of launching a layer's forward over the device's seconds of it, (B,)."""
    first = layers.kinds[0].forward
    return np.asarray(host_seconds(job, layers, first) / np.maximum(first.seconds, 1e-30))
