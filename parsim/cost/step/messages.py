"""Messages of a stage: their seconds and bytes to the next one, and a typical one of each axis.

    in layers   tp  activations at the borders of split matrices
                cp  keys and values, or heads of a sequence
                ep  copies of tokens on their way to experts
    shards      parameters of a layer, gathered by the ranks that share them
    gradients   a bucket: scattered over the ranks that share parameters, reduced over replicas

Sizes come from where the closed forms price them (`cost/layer`, `cost/data/data_parallel.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from parsim.arrays import Array, Flags, distinct, sorted_values
from parsim.cluster.placement import hop_crosses
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import crossing_share, groups, spine_divisor
from parsim.cost.collective.mesh_messages import hop_shares, partner_shares
from parsim.cost.collective.message import Message
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.layer.context import context_message
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.layer.mixture.exchanges import routed_copies
from parsim.cost.layer.tensor_exchanges import TensorGroups
from parsim.plan import PlanTable


def layer_messages(job: Job, table: PlanTable) -> Iterator[Message]:
    """Messages inside the layers of any stage of one plan (B = 1)."""
    model = job.model
    if table.tp[0] > 1:
        border = TensorGroups.of(job, table).messages(table.on_rank(model.border), 1)
        yield border.gathered if table.sequence_parallel[0] else border.summed
    if table.cp[0] > 1 and model.attention is not None:
        yield context_message(job, table, model.attention)
    if table.ep[0] > 1 and model.experts is not None:
        tokens = table.on_rank(model.experts.tokens) / table.sequence_split
        yield routed_copies(job, table, model.experts, tokens)


def shard_messages(job: Job, data: DataParallel, parameters: Array) -> Iterator[Message]:
    """Gathers of a stage with so many parameters on a rank, of one plan."""
    if _sharded(data):
        layers = max(job.model.num_layers / float(data.table.pp[0] * data.table.v[0]), 1.0)
        yield data.gathered(parameters / layers)


def gradient_messages(data: DataParallel, bucket: Array) -> Iterator[Message]:
    """Reductions of a bucket of so many parameters on a rank, of one plan."""
    if _sharded(data):
        once = data.table.zero_stage[0] == 1
        yield data.summed(bucket) if once else data.scattered(bucket)
    if data.replicate.size[0] > 1:
        yield data.reduced(bucket)


def _sharded(data: DataParallel) -> bool:
    """Whether several ranks share parameters, gradients or optimizer states."""
    return bool(data.shards[0] > 1)  # 1 without ZeRO


def crossing(job: Job, table: PlanTable) -> Flags:
    """Which hops leave a node, (p, B): rank r to r + 1, and from the last to rank 0."""
    pp, per_node = int(table.pp[0]), job.system.devices_per_node
    cases = np.stack([table.stride("pp"), table.world_size], axis=1)
    distinct, back = np.unique(cases, axis=0, return_inverse=True)
    rows = [
        hop_crosses(stride=q, pp=pp, devices_per_node=per_node, world_size=w)
        for q, w in distinct.tolist()
    ]
    crosses = np.array(rows, dtype=bool).reshape(len(distinct), pp - 1).T[:, back.reshape(-1)]
    return np.concatenate([crosses, crosses.any(axis=0, keepdims=True)])


def _spine(job: Job, table: PlanTable) -> Array:
    """By how much up-links of leaf groups narrow a hop, (B,): all replicas send at once."""
    system, network = job.system, job.system.network
    if network is None:
        return np.ones(len(table))
    several = table.world_size > network.nodes_per_leaf * system.devices_per_node
    shared = spine_divisor(system, crossing_share(system, table.stride("pp")))
    return np.asarray(np.where(several, shared, 1.0))


def pairs_crossing(job: Job, table: PlanTable, pairs: Sequence[tuple[int, int]]) -> Array:
    """The share of a leaf group's nodes that send to another leaf group, (B,).

    `pairs` are pipeline ranks that send to each other at the same time, in all replicas; the share
    is that of the leaf group where it is the largest, 0 where no pair lies in two.
    """
    system, pp = job.system, int(table.pp[0])
    if system.network is None:
        return np.zeros(len(table))
    cases, back, _ = distinct(table.stride("pp"), table.world_size)
    wide, each = system.network.nodes_per_leaf, system.devices_per_node
    shares = np.array(
        [
            _crossing_share(tuple(pairs), (pp, int(stride), int(world)), each, wide)
            for stride, world in zip(*cases, strict=True)
        ]
    )
    return shares if back is None else shares[back]


@lru_cache(maxsize=8192)
def _crossing_share(
    pairs: tuple[tuple[int, int], ...],
    shape: tuple[int, int, int],
    devices_per_node: int,
    nodes_per_leaf: int,
) -> float:
    """The share of one placement, counted rank by rank.

    `shape`: pipeline ranks, their stride, ranks in all.
    """
    pp, stride, world = shape
    first = (np.arange(0, world, pp * stride)[:, None] + np.arange(stride)).reshape(-1, 1, 1)
    nodes = (first + np.array(pairs) * stride) // devices_per_node
    leaves = nodes // nodes_per_leaf
    sends = sorted_values(nodes[leaves[..., 0] != leaves[..., 1]])
    return float(np.bincount(sends // nodes_per_leaf).max()) / nodes_per_leaf if len(sends) else 0.0


def hop_times(job: Job, table: PlanTable, borders: Sequence[int]) -> Array:
    """Message time after each stage; scattered, each rank sends 1/tp and the node gathers it."""
    pp = int(table.pp[0])
    hop = np.zeros((len(borders), len(table)))
    if pp == 1:
        return hop
    crosses = crossing(job, table)
    shares = hop_shares(job.system, table.stride("pp"), pp, table.world_size)
    seconds: dict[tuple[int, bytes], tuple[Array, Array]] = {}  # most stages send the same
    for stage, values in enumerate(borders[:-1]):
        share = shares[stage % pp]
        alike = values, share.tobytes()
        if alike not in seconds:
            seconds[alike] = message_seconds(job, table, values, share)
        inside, across = seconds[alike]
        hop[stage] = np.where(crosses[stage % pp], across, inside)
    return hop


def border_seconds(job: Job, table: PlanTable) -> Array:
    """Seconds of a message between neighbours, the mean over a pipeline's, (B,).

    Leaves out: that borders of some layers carry other values than those between blocks.
    """
    seconds = np.zeros(len(table))
    for pp in np.unique(table.pp[table.pp > 1]).tolist():
        rows = np.flatnonzero(table.pp == pp)
        hops = hop_times(job, table.take(rows), [job.model.border] * pp)
        seconds[rows] = hops[:-1].mean(axis=0)
    return seconds


def message_seconds(
    job: Job, table: PlanTable, values: int, share: Array | float
) -> tuple[Array, Array]:
    """Seconds of a message of so many values a sample: inside a node, and out of it, (B,) each.

    `share` is that of `p2p_time`.
    """
    sharing, spine, size = sharing_ranks(job, table), _spine(job, table), hop_bytes(table, values)
    inside, across = (
        p2p_time(job.system, size, crosses=over, sharing=sharing, spine=spine, share=share)
        for over in (False, True)
    )
    return inside, across + _regather(job, table, values)


def partner_seconds(job: Job, table: PlanTable, sent: Array) -> Array:
    """Seconds of messages of so many bytes from each rank r to rank pp - 1 - r, (p, B)."""
    pp, crosses = len(sent), crossing(job, table)
    pairs = [(rank, pp - 1 - rank) for rank in range(pp // 2)]
    sharing = sharing_ranks(job, table)
    spine = spine_divisor(job.system, pairs_crossing(job, table, pairs))
    shares = partner_shares(job.system, table.stride("pp"), pp, table.world_size)
    out = np.zeros_like(sent)
    for rank in range(pp):
        low, high = sorted((rank, pp - 1 - rank))
        share, system = shares[rank], job.system
        over = np.asarray(crosses[low:high].any(axis=0))
        inside, across = (
            p2p_time(system, sent[rank], crosses=far, sharing=sharing, spine=spine, share=share)
            for far in (False, True)
        )
        out[rank] = np.where(over, across, inside) if low != high else 0.0
    return out


def sharing_ranks(job: Job, table: PlanTable) -> Array:
    """How many ranks of a node send to the next stage at the same time, (B,)."""
    return np.minimum(table.stride("pp"), job.system.devices_per_node).astype(np.float64)


def hop_bytes(table: PlanTable, values: int) -> Array:
    """Bytes that a rank sends to the next stage of so many values a sample, (B,)."""
    whole = border_bytes(table, values)
    if not table.common.scatter_p2p:
        return whole
    return whole / np.where(table.sequence_parallel, 1, table.tp)


def _regather(job: Job, table: PlanTable, values: int) -> Array:
    """Seconds in which a node's ranks put scattered messages together again, (B,)."""
    if not table.common.scatter_p2p:
        return np.zeros(len(table))
    tp = groups(job.system, size=table.tp, stride=table.stride("tp"), world=table.world_size)
    again = collective_time(job.system, "all_gather", border_bytes(table, values), tp)
    return np.where(table.sequence_parallel, 0.0, again)
