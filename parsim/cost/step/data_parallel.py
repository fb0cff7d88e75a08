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
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from parsim.arrays import Array, Flags, ratio
from parsim.cluster.hardware import System
from parsim.cost.collective.group_bandwidth import Groups, Ranks, groups, placed_groups
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.kernel.gradient_sums import copies_gradients, unshared_bytes
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.kernel.quantized import gathered_size
from parsim.cost.optimizer import ADAMW
from parsim.cost.recorded import step_factor
from parsim.cost.step.buckets import (
    bucket_count,
    bucket_parameters,
    mean_bucket,
    reduced_bytes,
)
from parsim.cost.streams import pipelined
from parsim.plan import PlanTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallel:
    """Communicators of the data axes of a table of plans.

    `reached` are, for each of them, the kinds of node that it touches, with its placement on nodes
    of that kind: one, but in mixed clusters. `shards` (B,) are the
    ranks that share optimizer states, 1 without ZeRO, `bucket` (B,) the parameters of a gradient
    bucket; `experts` the same of the groups of experts, None where the model has none.
    """

    job: Job
    table: PlanTable
    shard: Groups
    replicate: Groups
    reached: Mapping[str, tuple[tuple[System, Groups], ...]]
    shards: Array
    bucket: Array
    experts: DataParallel | None = None

    @classmethod
    def of(cls, job: Job, table: PlanTable) -> DataParallel:
        """Place the shard, replicate and world groups."""
        reach, sharded = job.reach, table.zero_stage > 0
        world = table.world_size
        kinds = {
            "shard": _joined(table, "dp_shard", sharded),
            "replicate": _joined(table, "dp_replicate", ~sharded),
            "world": Ranks(size=world, stride=np.ones_like(world)),
        }

        def placed(system: System, name: str) -> Groups:
            return placed_groups(system, kinds[name], world)

        reached = {
            name: tuple(
                (node, placed(node, name))
                for node in (getattr(reach, name) if reach else (job.system,))
            )
            for name in kinds
        }
        return cls(
            job=job,
            table=table,
            shard=placed(job.system, "shard"),
            replicate=placed(job.system, "replicate"),
            reached=reached,
            shards=table.shards.astype(np.float64),
            bucket=mean_bucket(job, table),
            experts=None if job.model.experts is None else cls.of_experts(job, table),
        )

    def with_replicas(self, where: Groups) -> DataParallel:
        """This group with replicas that lie somewhere else, on nodes of one kind."""
        reached = {**self.reached, "replicate": ((self.job.system, where),)}
        return replace(self, replicate=where, reached=reached)

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
            bucket=bucket_parameters(job.software, table),  # experts' tensors are small
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

    def _time(self, message: Message) -> Array:
        """Seconds on the slowest kind of node that the group touches."""
        placed = self.reached[message.axis]
        times = (replace(message, where=where).seconds(system) for system, where in placed)
        return reduce(np.maximum, times)

    def gathered(self, parameters: Array) -> Message:
        """Parameters of all ranks that share them, at each of them."""
        size = parameters * gathered_size(self.job, self.table.precision)
        return Message(kind="all_gather", axis="shard", size=size, where=self.shard, queued=True)

    def scattered(self, parameters: Array) -> Message:
        """Gradients, each rank's share summed over those that share the parameters."""
        size = parameters * reduced_bytes(self.table)
        return Message(
            kind="reduce_scatter", axis="shard", size=size, where=self.shard, queued=True
        )

    def summed(self, parameters: Array) -> Message:
        """Gradients that ZeRO-1 sums over a shard group: scattered, or whole where copied."""
        message = self.scattered(parameters)
        return message.instead("all_reduce") if copies_gradients(self.job, self.table) else message

    def reduced(self, parameters: Array) -> Message:
        """Gradients of a rank's share, summed over replicas."""
        size = parameters / self.shards * reduced_bytes(self.table)
        return Message(
            kind="all_reduce", axis="replicate", size=size, where=self.replicate, queued=True
        )

    @property
    def busbw(self) -> Array:
        """Bytes a second that a rank sends while a gradient bucket is reduced, (B,).

        A bucket of V bytes among n ranks sends V (n - 1) / n to be scattered and twice that to be
        summed everywhere, in the seconds that it takes, its latency among them.
        """
        scatter, every = self.scattered(self.bucket), self.reduced(self.bucket)
        shards, copies = self.shard.size, self.replicate.size
        scattered = ratio(scatter.size * (1.0 - 1.0 / shards), self._time(scatter))
        summed = ratio(2.0 * every.size * (1.0 - 1.0 / copies), self._time(every))
        return np.where(shards > 1, scattered, summed)

    def gather(self, parameters: Array, experts: Array | None = None) -> Array:
        """All-gather of parameters over the shard group, seconds."""
        return self._both(
            lambda data, mine: data._sharded(data.gathered(mine)), parameters, experts
        )

    def scatter(self, parameters: Array, experts: Array | None = None) -> Array:
        """Reduce-scatter of gradients over the shard group, seconds."""
        return self._both(
            lambda data, mine: data._sharded(data.scattered(mine)), parameters, experts
        )

    def sums_once(self, parameters: Array, experts: Array | None = None) -> Array:
        """ZeRO-1's sum of gradients over the shard group after the last backward, seconds."""
        return self._both(lambda data, mine: data._sharded(data.summed(mine)), parameters, experts)

    def _sharded(self, message: Message) -> Array:
        """A collective of shards, and copies between its flat buffer and the tensors, seconds.

        A stack that hands lists of tensors to the library launches a copy for each rank of them.
        """
        stack, several = self.job.software, self.shard.size > 1
        moved = np.where(several, message.size * stack.staging, 0.0)
        pieces = np.where(several, self.shard.size * stack.piece_cost, 0.0)
        copies = memory_time(self.job.device, moved, 0, kind="copy")
        return self._time(message) + copies + pieces

    def final_reduction(self, parameters: Array) -> Array:
        """Gradient communication once per step, seconds.

        All-reduce over replicas of what is not yet reduced, plus ZeRO-1's sum over shards; ZeRO-2
        and 3 scatter in every backward.
        """
        once = self._all_reduced(self.reduced(parameters))
        return once + np.where(self.table.zero_stage == 1, self.sums_once(parameters), 0.0)

    def _all_reduced(self, message: Message) -> Array:
        """An all-reduce by the plan's algorithm, or by the library's choice.

        Hierarchical: reduce-scatter in each node, all-reduce of a rank's share across nodes,
        all-gather in each node; all of them rings, as 2-D all-reduces are.
        """
        algorithm = getattr(self.table.common.strategy, "algorithm", None)
        if algorithm is None:
            return self._time(message)
        if algorithm != "hierarchical":
            return self._time(replace(message, algorithm=algorithm))
        where, ring = message.where, replace(message, algorithm="ring")
        inside = replace(where, size=where.per_node, nodes=np.ones_like(where.nodes))
        across = replace(
            where,
            size=where.nodes,
            per_node=np.ones_like(where.per_node),
            sharing=np.maximum(where.sharing, 1.0) * where.per_node,
        )
        parts = (
            replace(ring, kind="reduce_scatter", where=inside),
            replace(ring, size=message.size / where.per_node, where=across),
            replace(ring, kind="all_gather", where=inside),
        )
        return sum((part.seconds(self.job.system) for part in parts), np.zeros(1))

    def buckets(self, parameters: Array, experts: Array | None = None) -> Array:
        """Number of gradient buckets of a stage, at least 1; experts have buckets of their own."""
        return self._both(
            lambda data, mine: bucket_count(data.job.software, data.table, mine, data.bucket),
            parameters,
            experts,
        )

    def bucketed_reduction(
        self, parameters: Array, experts: Array | None = None
    ) -> tuple[Array, Array]:
        """(number of buckets, seconds of one bucket) of the final reduction.

        One bucket carries an equal share of the parameters, so its latency is paid per bucket. With
        experts it is the mean of their buckets and of the others.
        """
        return self._by_bucket(lambda data, mine: data.final_reduction(mine), parameters, experts)

    def _by_bucket(
        self,
        of: Callable[[DataParallel, Array], Array],
        parameters: Array,
        experts: Array | None,
    ) -> tuple[Array, Array]:
        """(number of buckets, seconds of one) of what `of` says of a bucket's parameters."""
        if self.experts is None or experts is None:
            count = self.buckets(parameters)
            return count, of(self, parameters / count)
        count, each = self._by_bucket(of, parameters - experts, None)
        other, routed = self.experts._by_bucket(of, experts, None)
        return count + other, (count * each + other * routed) / (count + other)

    def final_gather(
        self,
        parameters: Array,
        forward: Array,
        speed: Array,
        experts: Array | None = None,
        idle: Array | float = 0.0,
    ) -> Array:
        """Parameter all-gather after the update, ZeRO-1 and 2: what shows of it, (p, B) seconds.

        Bucket by bucket beside a rank's first forwards, which take `forward` seconds, (p, B), and
        keep the share `speed` (B,) of their speed, and before these in the `idle` seconds, (p, B),
        in which a rank waits for its first micro-batch; the rest of the stack's `overlap` in line.
        """
        count, whole = self.updated_gathers(parameters, experts)
        share = self.job.software.overlap if self.table.common.overlap_param_gather else 0.0
        shown = np.maximum(pipelined(forward, whole, count, speed) - forward - idle, 0.0)
        return np.asarray(whole + share * np.where(whole > 0.0, shown - whole, 0.0))

    def updated_gathers(
        self, parameters: Array, experts: Array | None = None
    ) -> tuple[Array, Array]:
        """(buckets, seconds of all) in which ZeRO-1 and 2 gather updated parameters, (p, B)."""
        stage = self.table.zero_stage
        count, each = self._by_bucket(
            lambda data, mine: data._sharded(data.gathered(mine)), parameters, experts
        )
        return count, np.where((stage == 1) | (stage == 2), count * each, 0.0)

    def optimizer(self, parameters: Array, experts: Array | None = None) -> Array:
        """Optimizer step: bytes per local parameter over memory bandwidth, plus host time.

        Source: Adam with fp32 states reads and writes about 60 bytes per parameter over copy,
        unscale, norm, clip, update and copy back; 7 to 10 % of a 22B step is reproduced by it.
        Leaves out: CPU offload.
        """
        moved = self.updated_bytes(parameters, experts)
        seconds = memory_time(self.job.device, moved, kind="optimizer")
        factor = step_factor(self.job.device, self.table, "optimizer")
        return np.asarray((seconds + self.job.software.optimizer_fixed) * factor)

    def updated_bytes(self, parameters: Array, experts: Array | None = None) -> Array:
        """Bytes that the optimizer moves on a rank, which updates its share of the parameters.

        A stack's bytes are those with AdamW, another update moves so much less. Copied gradients
        that ZeRO-1 does not share out are read and written whole beside.
        """
        saved = ADAMW.moved - self.job.optimizer.moved
        share = self._updated(parameters, experts)
        whole = np.where(self.table.zero_stage == 1, unshared_bytes(self.job, self.table), 0.0)
        each = max(self.job.software.optimizer_bytes - saved, 0.0)
        return np.asarray(each * share + whole * (parameters - share))

    def gradient_norm(self, parameters: Array, experts: Array | None = None) -> Array:
        """The norm of all gradients on the rank that has the most of them, (B,).

        A scalar all-reduce over all ranks, and another one for overflow or NaN where the stack
        checks that; before it every gradient is read, and behind it read and written to be
        clipped, where these bytes are not among those of the update. In fp16 gradients are divided
        by the scale of the loss first, and ranks agree on an overflow, where that is apart.
        Leaves out: the launch of kernels for many small tensors.
        """
        (_, where), *_ = self.reached["world"]
        size = np.full(len(self.table), 4.0)
        scalar = Message(kind="all_reduce", axis="world", size=size, where=where)
        stack = self.job.software
        scaled = self.table.precision.compute == "fp16"
        each = stack.norm_bytes + (stack.clip_bytes if self.job.clip else 0.0)
        each += stack.scaling_bytes if scaled else 0.0
        summed = (stack.norm_sums + (stack.scaling_sums if scaled else 0.0)) * self._time(scalar)
        if not each:
            return summed
        moved = each * self._updated(parameters, experts).max(axis=0)
        return summed + memory_time(self.job.device, moved)

    def _updated(self, parameters: Array, experts: Array | None) -> Array:
        """Parameters that each rank updates, of those that it holds."""
        return self._both(lambda data, mine: mine / data.shards, parameters, experts)


def _joined(table: PlanTable, axis: str, joined: Flags) -> Ranks:
    """The group of an axis, where `joined` together with cp.

    Side by side both make one row of evenly spaced ranks; with pipeline ranks between them the
    group is a row of the inner axis for each rank of the outer one. `dp_shard` without ZeRO is 1.
    """
    degree = getattr(table, axis) if axis != "dp_shard" else np.where(joined, table.dp_shard, 1)
    cp = np.where(joined, table.cp, 1)
    outer, inner = table.stride(axis), table.stride("cp")
    swapped = inner > outer
    size, rows = np.where(swapped, degree, cp), np.where(swapped, cp, degree)
    stride, row_stride = np.minimum(outer, inner), np.maximum(outer, inner)
    stride = np.where(size > 1, stride, row_stride)
    one_row = (size == 1) | (rows == 1) | (row_stride == size * stride)
    return Ranks(
        size=np.where(one_row, size * rows, size),
        stride=stride,
        rows=np.where(one_row, 1, rows),
        row_stride=np.where(one_row, 1, row_stride),
    )
