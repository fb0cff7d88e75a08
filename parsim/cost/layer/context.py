"""Context parallelism: what exchanging keys and values adds to the attention core of each rank.

A sequence is cut over cp ranks; every query needs all keys and values before it. On a ring (p2p),
rank r computes with the block it has while the next one arrives from its neighbour:

    rank 0   q0 k0 | q0 k3 | q0 k2 | q0 k1        each | is a message, hidden under a block
    rank 1   q1 k1 | q1 k0 | q1 k3 | q1 k2

An all-gather brings all keys and values first; all-to-alls (a2a) bring a rank the whole sequence of
1/cp of its heads, and the outputs back. Nothing hides either of them:

    all_gather   k v |========| q0 K V                    backward: gathered again, and scattered
    a2a          q | k | v |  Q K V of some heads | out   backward: the same four, the other way

Causal blocks above the diagonal are empty, so a plain cut leaves the last rank with (2 - 1/cp) of
the mean work. Balanced stacks give each rank one piece from either end of the sequence instead.
Heads are all alike, so that all-to-alls have no such imbalance.

Source: ring attention (arXiv:2310.01889), its causal balance (arXiv:2311.09431), DeepSpeed-Ulysses
(arXiv:2309.14509), Transformer Engine's `cp_comm_type`; the all-gather as in the Llama 3 report
(arXiv:2407.21783, 3.3.2).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.collective.group_bandwidth import group_spine, groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.mesh_messages import circle_share
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.head_copies import beyond_share
from parsim.cost.layer.interference import measured_loss
from parsim.model.operators import Attention
from parsim.plan import CpCommType, PlanTable

MERGE_FIRST, MERGE = 4.0, 6.0
"""Bytes a value to put the first block's result in place (2 + 2) and to add another (2 + 2 + 2), in
16 bit, as Transformer Engine's fused corrections do."""

SWAPS = 4
"""All-to-alls of a pass: of queries, keys, values and outputs, or of their gradients."""

Pair = tuple[Array, Array]
"""Seconds forward and backward, (B,) each."""


def comm_type(job: Job, table: PlanTable) -> CpCommType:
    """What the ranks of the plans exchange: what the plans say, or what the software does."""
    return table.common.cp_comm_type or job.software.cp_comm_type


def on_ring(job: Job, table: PlanTable) -> bool:
    """Whether blocks of keys and values go round a ring."""
    return comm_type(job, table) is CpCommType.P2P


def by_heads(job: Job, table: PlanTable) -> Flags:
    """Whether ranks have heads of the whole sequence in attention, (B,)."""
    return np.asarray((table.cp > 1) & (comm_type(job, table) is CpCommType.A2A))


def slowest_share(job: Job, table: PlanTable, op: Attention) -> Array:
    """Attention work of the slowest rank over the mean, (B,): 1, or 2 - 1/cp of a plain cut.

    Rank r sees r whole blocks and half of its own: (r + 1/2) / cp of the keys, 1/2 on average.

    Source: see the module.
    Leaves out: that faster ranks wait at the next collective and not in the attention.
    """
    if not op.causal or job.software.context_balanced:
        return np.ones(len(table))
    return np.where(by_heads(job, table), 1.0, 2.0 - 1.0 / table.cp)


def moving(job: Job, table: PlanTable, op: Attention) -> Pair:
    """Seconds of what is read and written around the attention's kernels, (B,) each.

    Ring: adding up cp blocks of tokens x width / tp values, outputs forward, gradients of queries,
    keys and values backward. All-to-all: of each value that is sent, a copy by ranks before and one
    in the order of the sequence behind, two values moved each. Nothing else.

    Source: Transformer Engine's corrections of outputs, one fused kernel for each block, and its
    `flash_attn_a2a_communicate`.
    Leaves out: that later ranks' blocks of a balanced cut touch only half of their queries.
    """
    ring = (table.cp > 1) & on_ring(job, table)
    each = np.where(ring, MERGE_FIRST + MERGE * (table.cp - 1), 0.0)
    moved = each * table.on_rank(op.tokens) * op.mean_dim / table.tp
    ahead, behind = moved * op.heads, moved * (op.heads + 2 * op.kv_heads)
    behind = behind + moved * table.tp * beyond_share(2 * op.kv_heads, op.kv_heads, table)
    copied = np.where(by_heads(job, table), 4.0 * _swapped_bytes(table, op), 0.0)
    calls = copying(job, table)
    device = job.device
    return memory_time(device, ahead + copied, calls), memory_time(device, behind + copied, calls)


def copying(job: Job, table: PlanTable) -> Array:
    """Kernels that arrange what all-to-alls send and bring, in each direction, (B,)."""
    return np.where(by_heads(job, table), 2.0 * SWAPS, 0.0)


def exposed_exchange(job: Job, table: PlanTable, op: Attention, core: Pair) -> Pair:
    """Seconds of the exchange that show, forward and backward, (B,).

    `core` are the seconds of all of a pass's attention kernels; see `_ring`, `_gathered` and
    `_swapped`.
    """
    return _EXPOSED[comm_type(job, table)](job, table, op, core)


def context_message(job: Job, table: PlanTable, op: Attention) -> Message:
    """A typical message of one plan's context ranks (B = 1): keys and values, or a tensor's heads.

    All-to-alls of four sizes are taken as four of their mean.
    """
    if by_heads(job, table)[0]:
        return _message(job, table, "all_to_all", _swapped_bytes(table, op) / SWAPS)
    return keys_and_values(job, table, op)


def keys_and_values(job: Job, table: PlanTable, op: Attention) -> Message:
    """Keys and values of a sequence, gathered from all ranks that share it; a ring sends 1/cp."""
    heads = 2.0 * op.kv_heads / table.tp + beyond_share(2.0 * op.kv_heads, op.kv_heads, table)
    width = heads * op.mean_dim * table.precision.activation
    return _message(job, table, "all_gather", table.on_rank(op.key_tokens) * width * table.cp)


def _message(job: Job, table: PlanTable, kind: CollectiveKind, size: Array) -> Message:
    where = groups(job.system, size=table.cp, stride=table.stride("cp"), world=table.world_size)
    return Message(kind=kind, axis="cp", size=size, where=where)


def _gathered(job: Job, table: PlanTable, op: Attention, core: Pair) -> Pair:
    """An all-gather forward, again backward, and a reduce-scatter of the gradients; none hidden."""
    whole = keys_and_values(job, table, op)
    gather = whole.seconds(job.system)
    return gather, gather + whole.instead("reduce_scatter").seconds(job.system)


def _swapped_sizes(table: PlanTable, op: Attention) -> tuple[Array, ...]:
    """Bytes that a rank has of queries, keys, values and outputs: tokens x heads / tp x width.

    Heads of keys and values that are fewer than ranks are copied ahead of the exchange.
    """
    unit = table.on_rank(op.tokens) / table.tp * table.precision.activation
    shared = np.maximum(op.kv_heads, table.tp * table.cp)
    widths = (
        *(op.heads * op.head_dim, shared * op.head_dim),
        *(shared * op.output_dim, op.heads * op.output_dim),
    )
    return tuple(unit * width for width in widths)


def _swapped_bytes(table: PlanTable, op: Attention) -> Array:
    return np.asarray(sum(_swapped_sizes(table, op)))


def _swapped(job: Job, table: PlanTable, op: Attention, core: Pair) -> Pair:
    """An all-to-all of each of queries, keys, values and outputs, one after another, either way.

    Backward sends the output's gradient ahead of the attention and the others' behind it: what
    attention kept needs no second exchange.
    """
    times = (
        _message(job, table, "all_to_all", size).seconds(job.system)
        for size in _swapped_sizes(table, op)
    )
    seconds = np.asarray(sum(times))
    return seconds, seconds


def _ring(job: Job, table: PlanTable, op: Attention, core: Pair) -> Pair:
    """Messages beside blocks of core/cp seconds each.

    Forward: cp - 1 messages of b (s/cp) 2 (kv heads/tp) d values, each beside a block, see
    `_shown`. Backward goes the other way round and ends with the own block: keys and values beside
    the first block, gradients beside the last, and both, twice the bytes, beside the cp - 2 others.

    Source: messages of Transformer Engine's `AttnFuncWithCPAndKVP2P` and of
    executor/parallel/ring.py.
    Leaves out: the multiprocessors that messages take from the blocks beside them, where what
    compute loses beside a collective is not measured.
    """
    whole = keys_and_values(job, table, op)
    size, where = whole.size / table.cp, whole.where

    def message(bytes_sent: Array) -> Array:
        return p2p_time(
            job.system,
            bytes_sent,
            crosses=where.nodes > 1,
            sharing=where.sharing,
            spine=group_spine(job.system, where),
            share=circle_share(job.system, table.cp, table.stride("cp"), table.world_size),
        )

    lost = measured_loss(job.system) or 0.0
    steps, ahead, behind = table.cp - 1.0, core[0] / table.cp, core[1] / table.cp
    forward = steps * _shown(message(size), ahead, lost)
    single = _shown(message(size), behind, lost)
    double = _shown(message(2.0 * size), behind, lost)
    backward = np.where(table.cp > 1, 2.0 * single + (steps - 1.0) * double, 0.0)
    return np.asarray(forward), np.asarray(backward)


def _shown(message: Array, block: Array, lost: float) -> Array:
    """What a block and a message beside it take more than the block alone, seconds.

    max(lost message, message - block): while the message is on its way the block keeps the share
    1 - lost of its speed. Of a thread of gloo on the core that computes all is lost, so that
    nothing hides.

    Source: `System.interference`, measured by `parsim calibrate` beside an all-reduce.
    """
    return np.maximum(lost * message, message - block)


_EXPOSED: dict[CpCommType, Callable[[Job, PlanTable, Attention, Pair], Pair]] = {
    CpCommType.P2P: _ring,
    CpCommType.ALL_GATHER: _gathered,
    CpCommType.A2A: _swapped,
}
