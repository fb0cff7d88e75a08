"""Seconds and bytes of the optimizer's step and of the gradients' norm ahead of it, on each rank.

A rank updates its share of the parameters that it holds; experts are shared out over their own
groups. `parameters` and `experts` (those of them that are experts') are (p, B).
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cluster.hardware import System
from parsim.cost.collective.message import Message
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.kernel.gradient_sums import unshared_bytes
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.optimizer import ADAMW
from parsim.cost.recorded import step_factor


def update_time(data: DataParallel, parameters: Array, experts: Array | None = None) -> Array:
    """Optimizer step: bytes per local parameter over memory bandwidth, plus host time.

    Source: Adam with fp32 states reads and writes about 60 bytes per parameter over copy,
    unscale, norm, clip, update and copy back; 7 to 10 % of a 22B step is reproduced by it.
    Leaves out: CPU offload.
    """
    moved, job = updated_bytes(data, parameters, experts), data.job
    seconds = memory_time(job.device, moved, kind="optimizer")
    factor = step_factor(job.device, data.table, "optimizer")
    seconds = seconds * _contention(data)
    return np.asarray((seconds + job.software.optimizer_fixed) * factor)


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

    A stack's bytes are those with AdamW, another update moves so much less. Copied gradients
    that ZeRO-1 does not share out are read and written whole beside.
    """
    job, table = data.job, data.table
    saved = ADAMW.moved - job.optimizer.moved
    share = _updated(data, parameters, experts)
    whole = np.where(table.zero_stage == 1, unshared_bytes(job, table), 0.0)
    each = max(job.software.optimizer_bytes - saved, 0.0)
    return np.asarray(each * share + whole * (parameters - share))


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
    each = clipped_bytes(data.job, compute)
    if not each:
        return summed
    moved = each * _updated(data, parameters, experts).max(axis=0)
    return summed + memory_time(data.job.device, moved) * _contention(data)


def clipped_bytes(job: Job, compute: str) -> float:
    """Bytes moved for each gradient by the norm, by clipping, and in fp16 by the loss's scale.

    Those of them that are not among the bytes of the update.
    """
    stack = job.software
    clipped = stack.norm_bytes + (stack.clip_bytes if job.clip else 0.0)
    return clipped + (stack.scaling_bytes if compute == "fp16" else 0.0)


def _updated(data: DataParallel, parameters: Array, experts: Array | None) -> Array:
    """Parameters that each rank updates, of those that it holds."""
    return data.with_experts(lambda group, mine: mine / group.shards, parameters, experts)
