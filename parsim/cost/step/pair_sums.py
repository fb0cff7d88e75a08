"""All-reduces between two pipeline ranks: of a shared table, and of copies of a stage."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.job import Job
from parsim.cost.step.buckets import reduced_bytes
from parsim.cost.step.hops import crossing, sharing_ranks
from parsim.cost.step.parameters import tied_parameters
from parsim.plan import PlanTable


def tied_time(job: Job, table: PlanTable) -> Array:
    """All-reduce of the shared table's gradient between first and last stage, (B,)."""
    if not job.model.tied_embeddings or int(table.pp[0]) == 1:
        return np.zeros(len(table))
    return tied_seconds(job, table, crossing(job, table)[-1])


def tied_seconds(job: Job, table: PlanTable, wrap: Flags) -> Array:
    """All-reduce of a shared table between two stages, with `wrap` on two nodes, (B,)."""
    return pair_seconds(job, table, wrap, tied_parameters(job.model, table))


def copies_seconds(job: Job, table: PlanTable, by_rank: Array) -> Array:
    """All-reduces between ranks r and pp - 1 - r, which hold copies of the same stages, (p, B).

    Of what their own replicas have reduced: under ZeRO each rank has its share.

    Source: Chimera (arXiv 2107.06925), section 3.2. Leaves out: that it may begin before the last
    action of the rank.
    """
    pp, crosses = len(by_rank), crossing(job, table)
    known: dict[tuple[bytes, bytes], Array] = {}  # most ranks hold the same
    rows = []
    for rank in range(pp):
        low, high = sorted((rank, pp - 1 - rank))
        between = np.asarray(crosses[low:high].any(axis=0))
        pair = (between.tobytes(), by_rank[rank].tobytes())
        if pair not in known:
            known[pair] = pair_seconds(job, table, between, by_rank[rank] / table.shards)
        rows.append(known[pair])
    return np.stack(rows)


def pair_seconds(job: Job, table: PlanTable, wrap: Flags, parameters: Array) -> Array:
    """All-reduce of gradients between two pipeline ranks, with `wrap` on two nodes, (B,)."""
    pair = Groups(
        size=np.full(len(table), 2.0),
        per_node=np.where(wrap, 1.0, 2.0),
        nodes=np.where(wrap, 2.0, 1.0),
        sharing=sharing_ranks(job, table),
        leaves=np.zeros(len(table), dtype=bool),
    )
    size = parameters * reduced_bytes(table)
    return collective_time(job.system, "all_reduce", size, pair)
