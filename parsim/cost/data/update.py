"""Seconds and bytes of the optimizer's step and of the gradients' norm ahead of it, on each rank.

A rank updates its share of the parameters that it holds; experts are shared out over their own
groups. `parameters` and `experts` (those of them that are experts') are (p, B).
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Ints, Num
from parsim.cluster.hardware import Device, System
from parsim.cost.collective.message import Message
from parsim.cost.data.buckets import unshared_bytes
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.host_update import host_update_seconds, late_gradients, returned_seconds
from parsim.cost.data.reduction import final_gather
from parsim.cost.job import ADAMW, Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.recorded import step_factor

OPTIMIZER, NORM, CLIP = "optimizer", "gradient_norm", "gradient_clip"
"""Kinds of kernels that a calibration times by themselves; where it did not, the bytes of each move
at the rate of all memory-bound kernels."""
PASS_LAUNCHES = {OPTIMIZER: 1, NORM: 1, CLIP: 0}
"""Launches of each that count beside its bytes."""


def update_prices(
    data: DataParallel,
    parameters: Array,
    experts: Array | None,
    *,
    first: Array,
    speed: Array,
    idle: Array | float,
    backward: Array,
) -> dict[str, Array]:
    """Norm, update and gather behind the backwards by their names in `StepCosts`, seconds.

    Args:
        data: the data-parallel groups.
        parameters: of each rank, (p, B).
        experts: those of them that are experts', (p, B); None: none.
        first: seconds of a rank's first forwards, (p, B), which a gather runs beside.
        speed: the share of their speed that they keep then, (B,).
        idle: seconds in which a rank waits for its first micro-batch, (p, B).
        backward: seconds of a rank's backwards of one micro-batch, (p, B).
    """
    update, on_host = update_time(data, parameters, experts), {}
    if data.table.common.optimizer_offload:
        share = updated_parameters(data, parameters, experts)
        late = late_gradients(data, share, backward)
        update, on_host = update + late, {"host_copies": late + returned_seconds(data, share)}
    return {
        **on_host,
        "norm": norm_time(data, parameters, experts),
        "optimizer": update,
        "gather": final_gather(data, parameters, first, speed, experts, idle),
    }


def update_time(data: DataParallel, parameters: Array, experts: Array | None = None) -> Array:
    """Optimizer step: bytes per local parameter over memory bandwidth, plus host time.

    Source: Adam with fp32 states reads and writes about 60 bytes per parameter over copy,
    unscale, norm, clip, update and copy back; 7 to 10 % of a 22B step is reproduced by it.
    A plan with `optimizer_offload` has the host update, and gets its parameters back.
    """
    if data.table.common.optimizer_offload:
        share = updated_parameters(data, parameters, experts)
        seconds = host_update_seconds(data, share) + returned_seconds(data, share)
        return np.asarray(seconds + data.job.update_overhead)
    moved, job = updated_bytes(data, parameters, experts), data.job
    seconds = memory_time(job.device, moved, kind=OPTIMIZER)
    factor = step_factor(job.device, data.table, "optimizer")
    seconds = seconds * _contention(data)
    return np.asarray((seconds + job.update_overhead) * factor)


def _contention(data: DataParallel) -> Array:
    """How many times longer the ranks' updates are than one alone, (B,)."""
    return updates_at_once(data.job.system, data.table.world_size)


def updates_at_once(system: System, ranks: Ints) -> Array:
    """How many times longer an update is that so many ranks make at once.

    Ranks of a node that share its memory lose to each other (`memory_contention`), linearly in
    how many they are: measured are one alone and all of a node.
    """
    others = np.minimum(ranks, system.devices_per_node) - 1
    return np.asarray(1.0 + system.memory_contention * others / max(system.devices_per_node - 1, 1))


def updated_bytes(data: DataParallel, parameters: Array, experts: Array | None = None) -> Array:
    """Bytes that the optimizer moves on a rank, which updates its share of the parameters.

    Copied gradients that ZeRO-1 does not share out are read and written whole beside.
    """
    job, table = data.job, data.table
    share = updated_parameters(data, parameters, experts)
    whole = np.where(table.zero_stage == 1, unshared_bytes(job, table), 0.0)
    each = _bytes_of_each(job) * table.precision.width
    return np.asarray(each * share + whole * (parameters - share))


def share_update_time(job: Job, system: System, parameters: float, slowdown: float) -> float:
    """Seconds in which a device of the system updates so many parameters, that nobody else does.

    `slowdown` is by how much others beside it hold it up (`updates_at_once`).
    """
    moved = _bytes_of_each(job) * parameters
    alone = float(memory_time(system.device, moved, kind=OPTIMIZER))
    return alone * slowdown + job.update_overhead


def _bytes_of_each(job: Job) -> float:
    """Bytes that an update moves for each parameter.

    A stack's bytes are those with AdamW, another update moves so much less.
    """
    return max(job.software.optimizer_bytes - (ADAMW.moved - job.optimizer.moved), 0.0)


def norm_time(data: DataParallel, parameters: Array, experts: Array | None = None) -> Array:
    """The norm of all gradients on the rank that has the most of them, (B,).

    A scalar all-reduce over all ranks, and another one for overflow or NaN where the stack
    checks that; before it every gradient is read, and behind it read and written to be
    clipped, where these bytes are not among those of the update. In fp16 gradients are divided
    by the scale of the loss first, and ranks agree on an overflow, where that is apart.
    Leaves out: the launch of kernels for many small tensors.
    """
    (_, where), *_ = data.reached["world"]
    size = np.full(len(data.table), 4.0)
    scalar = Message(kind="all_reduce", axis="world", size=size, where=where)
    stack, compute = data.job.software, data.table.precision.compute
    sums = stack.norm_sums + (stack.scaling_sums if compute == "fp16" else 0.0)
    summed = sums * data.seconds(scalar)
    if not clipped_bytes(data.job, compute):
        return summed
    mine = updated_parameters(data, parameters, experts).max(axis=0)
    return summed + clipping_time(data.job, data.job.system, mine, compute, _contention(data))


def clipping_time(
    job: Job, system: System, parameters: Num, compute: str, slowdown: Num = 1.0
) -> Array:
    """Seconds of the norm of so many gradients and of clipping them on a device of the system.

    What writes as well as reads is `slowdown` times longer, as an update beside other ranks is;
    the norm only reads.
    Source: two CPU cores of one machine, 8 and 25 million gradients: norms at once take 3 to 10 %
    longer than one alone, clipping 49 to 65 %.
    """
    seconds = np.zeros(())
    for kind, moved in gradient_passes(job, compute).items():
        alone = pass_time(system.device, kind, moved * np.asarray(parameters))
        seconds = seconds + alone * (1.0 if kind == NORM else slowdown)
    return np.asarray(seconds)


def pass_time(device: Device, kind: str, moved: Num) -> Array:
    """Seconds of a pass over gradients that moves so many bytes, with no other rank beside it.

    The norm's launch counts; the host queues what follows behind it.
    """
    return memory_time(device, moved, PASS_LAUNCHES.get(kind, 0), kind)


def clipped_bytes(job: Job, compute: str) -> float:
    """Bytes moved for each gradient by all passes that are not among the update's."""
    return sum(gradient_passes(job, compute).values())


def gradient_passes(job: Job, compute: str) -> dict[str, float]:
    """Bytes moved for each gradient by the norm, by clipping, and in fp16 by the loss's scale.

    Those of them that are not among the bytes of the update, by kind of kernel; the loss's scale
    has none of its own.
    """
    stack = job.software
    passes = {
        NORM: stack.norm_bytes,
        CLIP: stack.clip_bytes if job.clip else 0.0,
        "": stack.scaling_bytes if compute == "fp16" else 0.0,
    }
    return {kind: moved for kind, moved in passes.items() if moved}


def updated_parameters(data: DataParallel, parameters: Array, experts: Array | None) -> Array:
    """Parameters that each rank updates, of those that it holds."""
    return data.with_experts(lambda group, mine: mine / group.shards, parameters, experts)
