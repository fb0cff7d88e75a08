"""The communicators of the data axes, and the messages that they carry, by stage and plan.

Arrays have shape (S, B). `dp_shard` holds ZeRO shards, `dp_replicate` copies.
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
from parsim.cost.data.buckets import (
    bucket_parameters,
    copies_gradients,
    mean_bucket,
    reduced_bytes,
    sums_whole,
)
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.kernel.quantized import gathered_size
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
        axes, world = _ranks_by_axis(table), table.world_size
        return cls(
            job=job,
            table=table,
            shard=placed_groups(job.system, axes["shard"], world),
            replicate=placed_groups(job.system, axes["replicate"], world),
            reached={
                name: tuple(
                    (node, placed_groups(node, ranks, world)) for node in _reached(job, name)
                )
                for name, ranks in axes.items()
            },
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

    def with_experts(
        self,
        of: Callable[[DataParallel, Array], Array],
        parameters: Array,
        experts: Array | None,
    ) -> Array:
        """What `of` says of the shared parameters and of the experts', together."""
        if self.experts is None or experts is None:
            return of(self, parameters)
        return of(self, parameters - experts) + of(self.experts, experts)

    def seconds(self, message: Message) -> Array:
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
        scattered = ratio(scatter.size * (1.0 - 1.0 / shards), self.seconds(scatter))
        summed = ratio(2.0 * every.size * (1.0 - 1.0 / copies), self.seconds(every))
        return np.where(shards > 1, scattered, summed)

    def gather(self, parameters: Array, experts: Array | None = None) -> Array:
        """All-gather of parameters over the shard group, seconds."""
        return self.with_experts(
            lambda data, mine: data._sharded(data.gathered(mine)), parameters, experts
        )

    @property
    def scattering(self) -> Array:
        """Share of a step's micro-batches whose gradients are scattered: all, or the last, (B,)."""
        count = np.asarray(self.table.num_microbatches, dtype=np.float64)
        return np.where(sums_whole(self.job, self.table), 1.0 / count, 1.0)

    def scatter(self, parameters: Array, experts: Array | None = None) -> Array:
        """Reduce-scatter of gradients over the shard group, seconds."""
        return self.with_experts(
            lambda data, mine: data._sharded(data.scattered(mine)), parameters, experts
        )

    def sums_once(self, parameters: Array, experts: Array | None = None) -> Array:
        """ZeRO-1's sum of gradients over the shard group after the last backward, seconds."""
        return self.with_experts(
            lambda data, mine: data._sharded(data.summed(mine)), parameters, experts
        )

    def _sharded(self, message: Message) -> Array:
        """A collective of shards, and copies between its flat buffer and the tensors, seconds.

        A stack that hands lists of tensors to the library launches a copy for each rank of them.
        """
        stack, several = self.job.software, self.shard.size > 1
        moved = np.where(several, message.size * stack.staging, 0.0)
        pieces = np.where(several, self.shard.size * stack.piece_cost, 0.0)
        copies = memory_time(self.job.device, moved, 0, kind="copy")
        return self.seconds(message) + copies + pieces


def _reached(job: Job, axis: str) -> tuple[System, ...]:
    """The kinds of node that a group of an axis touches: one, but in mixed clusters."""
    return (job.system,) if job.reach is None else tuple(getattr(job.reach, axis))


def _ranks_by_axis(table: PlanTable) -> dict[str, Ranks]:
    """The ranks of a shard group, of a group of copies, and of the whole world."""
    sharded, world = table.zero_stage > 0, table.world_size
    return {
        "shard": _joined(table, "dp_shard", sharded),
        "replicate": _joined(table, "dp_replicate", ~sharded),
        "world": Ranks(size=world, stride=np.ones_like(world)),
    }


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
