"""Context parallelism: what exchanging keys and values adds to the attention core of each rank.

A sequence is cut over cp ranks; every query needs all keys and values before it. On a ring, rank r
computes with the block it has while the next one arrives from its neighbour:

    rank 0   q0 k0 | q0 k3 | q0 k2 | q0 k1        each | is a message, hidden under a block
    rank 1   q1 k1 | q1 k0 | q1 k3 | q1 k2

Causal blocks above the diagonal are empty, so a plain cut leaves the last rank with (2 - 1/cp) of
the mean work. Balanced stacks give each rank one piece from either end of the sequence instead.

Source: ring attention (arXiv:2310.01889), its causal balance (arXiv:2311.09431), Transformer
Engine's `cp_comm_type`; the all-gather variant as in the Llama 3 report (arXiv:2407.21783, 3.3.2).
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.collective.message import Message
from parsim.cost.job import Job
from parsim.cost.kernel.kernels import memory_time
from parsim.model.operators import Attention
from parsim.plan import PlanTable

MERGE_FIRST, MERGE = 4.0, 6.0
"""Bytes a value to put the first block's result in place (2 + 2) and to add another (2 + 2 + 2), in
16 bit, as Transformer Engine's fused corrections do."""


def slowest_share(job: Job, table: PlanTable, op: Attention) -> Array:
    """Attention work of the slowest rank over the mean, (B,): 1, or 2 - 1/cp of a plain cut.

    Rank r sees r whole blocks and half of its own: (r + 1/2) / cp of the keys, 1/2 on average.

    Source: see the module.
    Leaves out: that faster ranks wait at the next collective and not in the attention.
    """
    if not op.causal or job.software.context_balanced:
        return np.ones(len(table))
    return np.asarray(2.0 - 1.0 / table.cp)


def on_ring(job: Job) -> bool:
    """Whether blocks go round a ring, or all keys and values are gathered first."""
    return job.software.context_exchange == "ring"


def merging(job: Job, table: PlanTable, op: Attention) -> tuple[Array, Array]:
    """Seconds of adding up the blocks' results, forward and backward, (B,).

    cp blocks of tokens x width / tp values: outputs forward; gradients of queries, keys and values
    backward. Nothing without a ring of two or more.

    Source: Transformer Engine's corrections of outputs, one fused kernel for each block.
    Leaves out: that later ranks' blocks of a balanced cut touch only half of their queries.
    """
    each = np.where((table.cp > 1) & on_ring(job), MERGE_FIRST + MERGE * (table.cp - 1), 0.0)
    tokens = table.on_rank(op.tokens)
    moved = each * tokens * op.mean_dim / table.tp
    ahead, behind = moved * op.heads, moved * (op.heads + 2 * op.kv_heads)
    return memory_time(job.device, ahead, 0), memory_time(job.device, behind, 0)


def exposed_exchange(
    job: Job, table: PlanTable, op: Attention, core: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Seconds of the exchange that show, forward and backward, (B,).

    Ring, forward: cp - 1 messages of b (s/cp) 2 (kv heads/tp) d values, each beside the block of
    core/cp seconds: (cp - 1) max(message - core/cp, 0), where a message takes nothing from the
    block beside it; see `_shown`. Backward goes the other way round and ends
    with the own block: keys and values beside the first block, gradients beside the last, and both,
    twice the bytes, beside the cp - 2 others.
    Gathered: an all-gather of keys and values forward, again backward, and a reduce-scatter of
    their gradients; nothing hides them.

    Source: see the module; messages of Transformer Engine's `AttnFuncWithCPAndKVP2P` and of
    executor/parallel/ring.py.
    Leaves out: the multiprocessors that messages take from the blocks beside them, where what
    compute loses beside a collective is not measured.
    """
    whole = keys_and_values(job, table, op)
    if on_ring(job):
        return _ring(job, table, whole, core)
    gather = whole.seconds(job.system)
    return gather, gather + whole.instead("reduce_scatter").seconds(job.system)


def keys_and_values(job: Job, table: PlanTable, op: Attention) -> Message:
    """Keys and values of a sequence, gathered from all ranks that share it; a ring sends 1/cp."""
    where = groups(job.system, size=table.cp, stride=table.stride("cp"), world=table.world_size)
    width = 2.0 * op.kv_heads / table.tp * op.mean_dim * table.precision.activation
    size = table.on_rank(op.tokens) * width * table.cp
    return Message(kind="all_gather", axis="cp", size=size, where=where)


def _ring(
    job: Job, table: PlanTable, whole: Message, core: tuple[Array, Array]
) -> tuple[Array, Array]:
    size, where = whole.size / table.cp, whole.where

    def message(bytes_sent: Array) -> Array:
        crosses = where.nodes > 1
        return p2p_time(job.system, bytes_sent, crosses=crosses, sharing=where.sharing)

    lost = job.system.interference or 0.0
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
