"""Bytes of eager PyTorch: of a micro-batch on each stage, what that sends on, and of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.data.buckets import bucket_parameters, reduced_bytes
from parsim.cost.job import Job
from parsim.cost.layer.composed import (
    autocast_kept,
    autocast_made,
    composed,
    composed_kept,
    widened,
)
from parsim.cost.layer.kept.activations import kept_policy
from parsim.cost.layer.kept.operator_tensors import kept_tensors
from parsim.cost.software import Software
from parsim.cost.step.stages import over_kinds, sent_bytes
from parsim.cost.step.step import stage_cut
from parsim.model.layer import Branches, Layer
from parsim.plan import PlanTable, Recompute


class StageBytes(NamedTuple):
    """Bytes of a micro-batch on each stage, (S, B), and which stages hold blocks.

    What it keeps until its backward, what it keeps beside that from I to W, what of it goes when
    its I ends, what it sends on.
    """

    kept: Array
    waiting: Array
    released: Array
    sent: Array
    with_blocks: Flags

    def of(self, stages: Sequence[int]) -> StageBytes:
        """The rows of some of the stages."""
        rows = list(stages)
        return StageBytes(
            kept=self.kept[rows],
            waiting=self.waiting[rows],
            released=self.released[rows],
            sent=self.sent[rows],
            with_blocks=self.with_blocks[rows],
        )


def unreached_bytes(job: Job, table: PlanTable) -> Array:
    """What the first layer keeps of operators that backward does not reach, (B,).

    Nothing ahead of the first trained product needs a gradient where the table of tokens is frozen.

    Leaves out: layers ahead of it, where only some kinds of layers have adapters.
    """
    trained, first = job.model.trained, job.model.blocks[0]
    if trained is None or trained.lookup is not None:
        return np.zeros(len(table))
    ahead = takewhile(lambda part: not isinstance(part, Branches), first.parts)
    kept = made_bytes(replace(first, parts=tuple(ahead)), table, job.software)
    return np.asarray(np.where(table.recompute == Recompute.FULL, 0.0, kept))


def made_bytes(layer: Layer, table: PlanTable, software: Software) -> Array:
    """All that forward makes of a layer for its backward, (B,), where nothing is repeated."""
    made = composed(layer, table, software) + autocast_made(layer, table, software)
    for _, _, size in kept_tensors(layer, table, policy=kept_policy(software)):
        made = made + size
    return np.asarray(made)


def composed_bytes(job: Job, table: PlanTable, counts: Array) -> Array:
    """Kept where eager PyTorch composes what others fuse, one micro-batch on each stage, (S, B).

    And what autocast keeps there: see `parsim/cost/layer/composed.py`.
    """
    software = job.software
    rows = over_kinds(counts, composed_kinds(job, table))
    for stage, outer in ((0, job.model.before), (-1, job.model.behind)):
        for layer in outer:
            rows[stage] += composed(layer, table, software) + autocast_made(layer, table, software)
    return rows


def composed_kinds(job: Job, table: PlanTable) -> Array:
    """Bytes that a layer of each kind keeps so, (K, B)."""
    software = job.software
    kept = [
        composed_kept(layer, table, software) + autocast_kept(layer, table, software)
        for layer in job.model.kinds
    ]
    return np.stack(kept)


def sent_messages(job: Job, table: PlanTable) -> Array:
    """Bytes that each stage sends on of a micro-batch, (S, B), in the dtype that it computes in."""
    return np.asarray(sent_bytes(job.model, table, stage_cut(job, table)) * widened(table))


def in_buckets(job: Job, table: PlanTable) -> Flags:
    """Whether gradients lie in flat buffers that stay, (B,).

    Those of replicas (DDP's buckets, or the executor's), of copies of the model, of ZeRO-1, of
    16-bit parameters, and of experts that other ranks reduce. Source: `executor/parallel/data.py`.
    """
    routed = (table.expert_ranks * table.tp > 1) & (job.model.experts is not None)
    narrow = table.precision.parameter == 2
    several = table.dp * table.cp * table.copies > 1
    kept = (table.zero_stage == 1) | narrow | several | routed
    return np.asarray(kept & (table.zero_stage < 2))


def reduce_bytes(job: Job, table: PlanTable, gradients: Array, shards: Index) -> Array:
    """What gradients of so many bytes need beside them while they are reduced, (B,).

    Under ZeRO-1 a share for each rank, and the library's copies: of the last bucket, or under a
    pipeline, which sends them all at once, of all. What is sent narrower is a copy of its own.
    Source: `GradientBuckets._launch` of `executor/parallel/gradients/buckets.py`.
    """
    kept = table.summed_bytes
    sent = gradients * reduced_bytes(table) / kept
    narrower = sent if reduced_bytes(table) < kept else np.zeros_like(sent)
    bucket = bucket_parameters(job.software, table) * reduced_bytes(table)
    copied = np.where(table.pp > 1, sent, np.minimum(sent, bucket)) * job.software.scatter_copies
    scattered = np.where(shards > 1, sent / shards + copied, 0.0)
    extra = narrower + np.where(table.zero_stage == 1, scattered, 0.0)
    replicas = table.dp * table.cp > 1
    return np.asarray(np.where(replicas & (table.zero_stage < 2), extra, 0.0))
