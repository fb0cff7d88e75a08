"""Seconds of what data-parallel ranks exchange once a step: gradients, and updated parameters.

    backward ... | bucket 1 | bucket 2 | ... | norm | update | gather 1 | gather 2 | ...

Every function takes parameters of stages on a rank, (S, B), and how many of them are experts'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.message import Message
from parsim.cost.data.buckets import bucket_count
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.streams import pipelined


def final_reduction(data: DataParallel, parameters: Array) -> Array:
    """Gradient communication once per step, seconds.

    All-reduce over replicas of what is not yet reduced, plus ZeRO-1's sum over shards; ZeRO-2
    and 3 scatter in every backward.
    """
    once = _all_reduced(data, data.reduced(parameters))
    return once + np.where(data.table.zero_stage == 1, data.sums_once(parameters), 0.0)


def _all_reduced(data: DataParallel, message: Message) -> Array:
    """An all-reduce by the plan's algorithm, or by the library's choice.

    Hierarchical: reduce-scatter in each node, all-reduce of a rank's share across nodes,
    all-gather in each node; all of them rings, as 2-D all-reduces are.
    """
    algorithm = getattr(data.table.common.strategy, "algorithm", None)
    if algorithm is None:
        return data.seconds(message)
    if algorithm != "hierarchical":
        return data.seconds(replace(message, algorithm=algorithm))
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
    return sum((part.seconds(data.job.system) for part in parts), np.zeros(1))


def num_buckets(data: DataParallel, parameters: Array, experts: Array | None = None) -> Array:
    """Number of gradient buckets of a stage, at least 1; experts have buckets of their own."""
    return data.with_experts(
        lambda group, mine: bucket_count(group.job.software, group.table, mine, group.bucket),
        parameters,
        experts,
    )


def bucketed_reduction(
    data: DataParallel, parameters: Array, experts: Array | None = None
) -> tuple[Array, Array]:
    """(number of buckets, seconds of one bucket) of the final reduction.

    One bucket carries an equal share of the parameters, so its latency is paid per bucket. With
    experts it is the mean of their buckets and of the others.
    """
    return _by_bucket(final_reduction, data, parameters, experts)


def _by_bucket(
    of: Callable[[DataParallel, Array], Array],
    data: DataParallel,
    parameters: Array,
    experts: Array | None,
) -> tuple[Array, Array]:
    """(number of buckets, seconds of one) of what `of` says of a bucket's parameters."""
    if data.experts is None or experts is None:
        count = num_buckets(data, parameters)
        return count, of(data, parameters / count)
    count, each = _by_bucket(of, data, parameters - experts, None)
    other, routed = _by_bucket(of, data.experts, experts, None)
    return count + other, (count * each + other * routed) / (count + other)


def final_gather(
    data: DataParallel,
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
    count, whole = updated_gathers(data, parameters, experts)
    share = data.job.software.overlap if data.table.common.overlap_param_gather else 0.0
    shown = np.maximum(pipelined(forward, whole, count, speed) - forward - idle, 0.0)
    return np.asarray(whole + share * np.where(whole > 0.0, shown - whole, 0.0))


def updated_gathers(
    data: DataParallel, parameters: Array, experts: Array | None = None
) -> tuple[Array, Array]:
    """(buckets, seconds of all) in which ZeRO-1 and 2 gather updated parameters, (p, B)."""
    stage = data.table.zero_stage
    count, each = _by_bucket(DataParallel.gather, data, parameters, experts)
    return count, np.where((stage == 1) | (stage == 2), count * each, 0.0)
