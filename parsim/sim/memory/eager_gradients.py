"""Gradients of eager PyTorch: which lie in buckets, and what reducing them needs beside them."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cost.data.buckets import bucket_parameters, reduced_bytes
from parsim.cost.job import Job
from parsim.plan import PlanTable


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
    Source: `GradientBuckets._launch` of `executor/parallel/buckets.py`.
    """
    kept = 4.0 if table.common.gradient_precision == "fp32" else float(table.precision.parameter)
    sent = gradients * reduced_bytes(table) / kept
    narrower = sent if reduced_bytes(table) < kept else np.zeros_like(sent)
    bucket = bucket_parameters(job.software, table) * reduced_bytes(table)
    copied = np.where(table.pp > 1, sent, np.minimum(sent, bucket)) * job.software.scatter_copies
    scattered = np.where(shards > 1, sent / shards + copied, 0.0)
    extra = narrower + np.where(table.zero_stage == 1, scattered, 0.0)
    replicas = table.dp * table.cp > 1
    return np.asarray(np.where(replicas & (table.zero_stage < 2), extra, 0.0))
