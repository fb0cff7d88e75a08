"""Data-parallel communication: gradient reduction, parameter gathering, optimizer step.

Per stage and plan, arrays of shape (S, B). `dp_shard` holds ZeRO shards, `dp_replicate` copies.
Context-parallel ranks hold the same parameters and different gradients, like replicas: ZeRO shards
over dp_shard x cp, as Megatron-Core and torchtitan do; without ZeRO the all-reduce spans
dp_replicate x cp.

Experts have data-parallel groups of their own, in which every rank holds the same experts: the
stage's other ranks hold others. Where `experts` says how many of the `parameters` are theirs, these
go over their own groups, after the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import System
from parsim.cost.collectives import Groups, Kind, collective_time, groups
from parsim.cost.job import Job
from parsim.cost.kernels import memory_time
from parsim.cost.quantized import gathered_size
from parsim.cost.streams import pipelined
from parsim.plan import PlanTable

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallel:
    """Communicators of the data axes of a table of plans.

    `reached` are, for each of them, the kinds of node that it touches, with its placement on nodes
    of that kind: one, but in mixed clusters. `shards` (B,) are the
    ranks that share optimizer states, 1 without ZeRO; `experts` the same of the groups of experts,
    None where the model has none.
    """

    job: Job
    table: PlanTable
    shard: Groups
    replicate: Groups
    reached: Mapping[str, tuple[tuple[System, Groups], ...]]
    shards: Array
    experts: DataParallel | None = None

    @classmethod
    def of(cls, job: Job, table: PlanTable) -> DataParallel:
        """Place the shard, replicate and world groups."""
        reach, sharded = job.reach, table.zero_stage > 0
        size, world = table.dp_replicate * np.where(sharded, 1, table.cp), table.world_size
        kinds = {
            "shard": (table.shards, _stride(table, "dp_shard", sharded)),
            "replicate": (size, _stride(table, "dp_replicate", ~sharded)),
            "world": (world, np.ones_like(world)),
        }

        def placed(system: System, name: str) -> Groups:
            ranks, stride = kinds[name]
            return groups(system, size=ranks, stride=stride, world=world)

        own = {name: placed(job.system, name) for name in kinds}
        reached = {
            name: tuple((one, placed(one, name)) for one in getattr(reach, name))
            if reach
            else ((job.system, own[name]),)
            for name in kinds
        }
        return cls(
            job=job,
            table=table,
            shard=own["shard"],
            replicate=own["replicate"],
            reached=reached,
            shards=table.shards.astype(np.float64),
            experts=None if job.model.experts is None else cls.of_experts(job, table),
        )

    @classmethod
    def of_experts(cls, job: Job, table: PlanTable) -> DataParallel:
        """Place the groups of ranks that hold the same experts, ep x etp ranks apart."""
        world, apart = table.world_size, table.expert_ranks
        shards = table.expert_shards
        shard = groups(job.system, size=shards, stride=apart, world=world)
        over = groups(
            job.system, size=table.expert_replicas // shards, stride=apart * shards, world=world
        )
        return cls(
            job=job,
            table=table,
            shard=shard,
            replicate=over,
            reached={"shard": ((job.system, shard),), "replicate": ((job.system, over),)},
            shards=shards.astype(np.float64),
        )

    def _both(
        self,
        of: Callable[[DataParallel, Array], Array],
        parameters: Array,
        experts: Array | None,
    ) -> Array:
        """What `of` says of the shared parameters and of the experts', together."""
        if self.experts is None or experts is None:
            return of(self, parameters)
        return of(self, parameters - experts) + of(self.experts, experts)

    def _time(self, kind: Kind, size: Array, name: str) -> Array:
        """Of the slowest kind of node that the group touches."""
        times = (collective_time(on, kind, size, where) for on, where in self.reached[name])
        return reduce(np.maximum, times)

    def gather(self, parameters: Array, experts: Array | None = None) -> Array:
        """All-gather of parameters over the shard group, seconds."""
        return self._both(DataParallel._gather, parameters, experts)

    def _gather(self, parameters: Array) -> Array:
        size = parameters * gathered_size(self.job, self.table.precision)
        return self._time("all_gather", size, "shard") + self._staged(size)

    def scatter(self, parameters: Array, experts: Array | None = None) -> Array:
        """Reduce-scatter of gradients over the shard group, seconds."""
        return self._both(DataParallel._scatter, parameters, experts)

    def _scatter(self, parameters: Array) -> Array:
        size = parameters * reduced_bytes(self.table)
        return self._time("reduce_scatter", size, "shard") + self._staged(size)

    def _staged(self, size: Array) -> Array:
        """Copies between the collective's flat buffer and the tensors, (B,) or (S, B)."""
        moved = np.where(self.shard.size > 1, size * self.job.software.staging, 0.0)
        return memory_time(self.job.device, moved, 0, kind="copy")

    def final_reduction(self, parameters: Array) -> Array:
        """Gradient communication once per step, seconds.

        All-reduce over replicas of what is not yet reduced, plus ZeRO-1's reduce-scatter; ZeRO-2
        and 3 scatter in every backward.
        """
        size = parameters / self.shards * reduced_bytes(self.table)
        once = self._time("all_reduce", size, "replicate")
        return once + np.where(self.table.zero_stage == 1, self.scatter(parameters), 0.0)

    def buckets(self, parameters: Array, experts: Array | None = None) -> Array:
        """Number of gradient buckets of a stage, at least 1; experts have buckets of their own."""
        return self._both(DataParallel._buckets, parameters, experts)

    def _buckets(self, parameters: Array) -> Array:
        size = parameters * reduced_bytes(self.table)
        return np.maximum(np.ceil(size / self.table.common.bucket_bytes), 1.0)

    def bucketed_reduction(
        self, parameters: Array, experts: Array | None = None
    ) -> tuple[Array, Array]:
        """(number of buckets, seconds of one bucket) of the final reduction.

        One bucket carries an equal share of the parameters, so its latency is paid per bucket. With
        experts it is the mean of their buckets and of the others.
        """
        if self.experts is None or experts is None:
            count = self.buckets(parameters)
            return count, self.final_reduction(parameters / count)
        count, each = self.bucketed_reduction(parameters - experts)
        other, own = self.experts.bucketed_reduction(experts)
        return count + other, (count * each + other * own) / (count + other)

    def final_gather(
        self, parameters: Array, forward: Array, speed: Array, experts: Array | None = None
    ) -> Array:
        """Parameter all-gather after the update, ZeRO-1 and 2: what shows of it, (p, B) seconds.

        Bucket by bucket beside a rank's first forwards, which take `forward` seconds, (p, B), and
        keep the share `speed` (B,) of their speed; the rest of the stack's `overlap` in line.

        Leaves out: the bubble in which later ranks wait for their first micro-batch.
        """
        stage, count = self.table.zero_stage, self.buckets(parameters, experts)
        whole = np.where((stage == 1) | (stage == 2), self.gather(parameters, experts), 0.0)
        share = self.job.software.overlap if self.table.common.overlap_param_gather else 0.0
        shown = pipelined(forward, whole, count, speed) - forward
        return np.asarray(whole + share * np.where(whole > 0.0, shown - whole, 0.0))

    def optimizer(self, parameters: Array, experts: Array | None = None) -> Array:
        """Optimizer step: bytes per local parameter over memory bandwidth, plus host time.

        Source: Adam with fp32 states reads and writes about 60 bytes per parameter over copy,
        unscale, norm, clip, update and copy back; 7 to 10 % of a 22B step is reproduced by it.
        Leaves out: CPU offload.
        """
        held = self._both(lambda data, mine: mine / data.shards, parameters, experts)
        moved = held * self.job.software.optimizer_bytes
        seconds = memory_time(self.job.device, moved, kind="optimizer")
        return seconds + self.job.software.optimizer_fixed

    def gradient_norm(self) -> Array:
        """Two scalar all-reduces over all ranks (norm, and overflow or NaN check), (B,)."""
        return 2.0 * self._time("all_reduce", np.full(len(self.table), 4.0), "world")


def _stride(table: PlanTable, axis: str, joined: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Distance of neighbours in the group of an axis, where `joined` together with cp.

    The rules keep cp beside the axis it joins, so that both make one evenly spaced group.
    """
    own, cp, degree = table.stride(axis), table.stride("cp"), getattr(table, axis)
    both = np.where(degree > 1, np.minimum(own, cp), cp)
    return np.where(joined & (table.cp > 1), both, own)


def reduced_bytes(table: PlanTable) -> float:
    """Bytes per gradient element on the wire."""
    wide = table.common.reduce_precision == "fp32"
    return 4.0 if wide else float(table.precision.gathered)
