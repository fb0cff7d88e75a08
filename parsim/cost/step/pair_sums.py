"""Sums of gradients of what several ranks hold: a shared table, copies of a stage, copied heads.

    tied table, stages   | last backward | reduce over replicas | sum of two pipeline ranks | update
    key-value heads      | last backward | sum of tp / heads ranks | reduce over replicas | update

Of a key-value head that several tensor-parallel ranks hold, each copy has the gradient that its
rank's query heads give; ranks side by side that hold the same head add theirs up once a step.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import Groups, groups
from parsim.cost.collective.mesh_messages import hop_shares, partner_shares
from parsim.cost.collective.message import Message
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.job import Job
from parsim.cost.layer.head_copies import key_value_heads, shared_parameters
from parsim.cost.step.messages import crossing, pairs_crossing, sharing_ranks
from parsim.cost.step.stages import over_kinds, tied_parameters
from parsim.plan import PlanTable


def tied_time(job: Job, table: PlanTable) -> Array:
    """All-reduce of the shared table's gradient between first and last stage, (B,)."""
    if not job.model.updated.tied_embeddings or int(table.pp[0]) == 1:
        return np.zeros(len(table))
    pp = int(table.pp[0])
    share = hop_shares(job.system, table.stride("pp"), pp, table.world_size)[-1]
    leaving = pairs_crossing(job, table, [(0, pp - 1)])
    return tied_seconds(job, table, crossing(job, table)[-1], share, leaving)


def tied_seconds(
    job: Job, table: PlanTable, wrap: Flags, share: Array | float, leaving: Array | float = 0.0
) -> Array:
    """All-reduce of a shared table between two stages, with `wrap` on two nodes, (B,).

    `share` and `leaving` are those of `pair_seconds`.
    """
    return pair_seconds(job, table, wrap, tied_parameters(job.model, table), share, leaving)


def copies_seconds(job: Job, table: PlanTable, by_rank: Array) -> Array:
    """All-reduces between ranks r and pp - 1 - r, which hold copies of the same stages, (p, B).

    Of what their own replicas have reduced: under ZeRO each rank has its share.

    Source: Chimera (arXiv 2107.06925), section 3.2. Leaves out: that it may begin before the last
    action of the rank.
    """
    pp, crosses = len(by_rank), crossing(job, table)
    shares = partner_shares(job.system, table.stride("pp"), pp, table.world_size)
    leaving = pairs_crossing(job, table, [(rank, pp - 1 - rank) for rank in range(pp // 2)])
    known: dict[tuple[bytes, ...], Array] = {}  # most ranks hold the same
    rows = []
    for rank in range(pp):
        low, high = sorted((rank, pp - 1 - rank))
        between = np.asarray(crosses[low:high].any(axis=0))
        pair = (between.tobytes(), by_rank[rank].tobytes(), shares[rank].tobytes())
        if pair not in known:
            parameters = by_rank[rank] / table.shards
            known[pair] = pair_seconds(job, table, between, parameters, shares[rank], leaving)
        rows.append(known[pair])
    return np.stack(rows)


def pair_seconds(
    job: Job,
    table: PlanTable,
    wrap: Flags,
    parameters: Array,
    share: Array | float,
    leaving: Array | float = 0.0,
) -> Array:
    """All-reduce of gradients between two pipeline ranks, with `wrap` on two nodes, (B,).

    `share` is what the two have of a device's rate inside their node (`pair_share`), `leaving` of
    how many of a leaf group's nodes such sums leave it, as a share (`pairs_crossing`).
    """
    pair = Groups(
        size=np.full(len(table), 2.0),
        per_node=np.where(wrap, 1.0, 2.0),
        nodes=np.where(wrap, 2.0, 1.0),
        sharing=sharing_ranks(job, table),
        leaves=np.broadcast_to(np.asarray(leaving) > 0.0, wrap.shape),
        crossing=np.broadcast_to(leaving, wrap.shape),
        ring_share=np.where(wrap, 1.0, share),
    )
    size = parameters * reduced_bytes(table)
    return collective_time(job.system, "all_reduce", size, pair)


def head_sums(job: Job, table: PlanTable, counts: Array) -> Array | float:
    """Seconds in which a rank's copies of heads get their gradients' sum, (S, B); 0.0 of none.

    `counts` are the layers of each kind on each stage, see `over_kinds`.

    Source: `executor/parallel/gradients/buckets.py`; BigCode's Megatron-LM sums over the ranks of
    its one head alike (`allreduce_key_value_grads`, commit 7c325cd).
    Leaves out: that FSDP (ZeRO-2 and 3) sums in every backward, not once a step.
    """
    kinds = job.model.updated.kinds
    heads = key_value_heads(kinds)
    if heads is None or job.software.kv_heads != "copied" or not (table.tp > heads).any():
        return 0.0
    per_kind = np.stack([shared_parameters(layer, table) for layer in kinds])
    size = over_kinds(counts, per_kind) * table.summed_bytes
    where = groups(
        job.system,
        size=table.tp // np.minimum(table.tp, heads),
        stride=table.stride("tp"),
        world=table.world_size,
    )
    summed = Message(kind="all_reduce", axis="tp", size=size, where=where).seconds(job.system)
    return np.where(size > 0.0, summed, 0.0)
