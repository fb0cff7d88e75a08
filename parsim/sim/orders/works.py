"""What is to be ordered, from a plan's prices: lengths of actions and room for micro-batches.

`whole` and `split` are for stages that are alike but for their layers, `of_stages` for those with
replicas and tensor degrees of their own, whose backwards are whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from parsim.arrays import Array
from parsim.schedule import Kind
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.orders.work import Work
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.step.schedule_costs import action_seconds

if TYPE_CHECKING:
    from parsim.sim.stages.run import TaskRun


def whole(evaluation: Evaluation, capacity: float) -> Work:
    """The stages' lengths with whole backwards, and what each rank's memory holds."""
    costs, schedule = evaluation.step.costs, evaluation.step.schedule(0)
    hop = costs.hop[:-1, 0]
    return _work(
        (costs.forward[:, 0], costs.backward[:, 0]),
        (hop, hop),
        _limits(evaluation, capacity),
        schedule.num_microbatches,
        blocking=costs.blocking_p2p,
    )


def split(evaluation: Evaluation, capacity: float) -> Work:
    """This work with backwards in two, priced as in a user's schedule."""
    costs, seconds = evaluation.step.costs, action_seconds(evaluation.step.costs)
    back = _sent_back(costs.hop[:-1, 0]) if costs.blocking_p2p else 0.0
    return replace(
        whole(evaluation, capacity),
        backward=tuple((seconds[Kind.I][:, 0] + back).tolist()),
        weight=tuple(seconds[Kind.W][:, 0].tolist()),
    )


def of_stages(run: TaskRun, capacity: float) -> Work:
    """The lengths of stages with replicas of their own, and what each replica's memory holds."""
    prices, count, counts = run.prices, run.plan.num_microbatches, run.priced.replicas.counts
    border = np.ones(len(counts) - 1)
    back = prices.message if prices.message_back is None else prices.message_back
    room = np.maximum(capacity - prices.static, 0.0) / np.maximum(prices.activations, 1.0)
    limits = np.clip(np.floor(room), 1, count // np.array(counts)).astype(int)
    work = _work(
        (prices.forward, prices.backward),
        (prices.message * border, back * border),
        tuple(limits.tolist()),
        count,
        blocking=run.priced.costs.blocking_p2p,
    )
    return replace(work, counts=counts)


def _work(
    passes: tuple[Array, Array],
    messages: tuple[Array, Array],
    limits: tuple[int, ...],
    count: int,
    *,
    blocking: bool,
) -> Work:
    """The work of so many micro-batches; F and B of each stage, messages ahead and back.

    Where a message keeps its sender's compute stream, it is part of the action that sends it.
    """
    (forward, backward), (ahead, back) = passes, messages
    if blocking:
        forward, backward = forward + np.append(ahead, 0.0), backward + _sent_back(back)
        ahead, back = 0.0 * ahead, 0.0 * back
    return Work(
        stage_rank=range(len(forward)),
        num_microbatches=count,
        forward=tuple(forward.tolist()),
        backward=tuple(backward.tolist()),
        limits=limits,
        borders=(tuple(ahead.tolist()), tuple(back.tolist())),
    )


def _sent_back(messages: Array) -> Array:
    """What each stage sends to the one before it, (p,), from seconds at each border."""
    return np.append(0.0, messages)


def _limits(evaluation: Evaluation, capacity: float) -> tuple[int, ...]:
    """Micro-batches in flight for which each rank has room in so many bytes, one at the least.

    One less than by the bytes that a micro-batch keeps, where there is room for more than the
    schedule holds: in another order, buffers may stand at the moment that holds most. As many as
    the schedule holds where the peak is the update's, which has none.
    """
    memory, schedule = evaluation.memory_of(0), evaluation.step.schedule(0)
    in_flight = np.array([max(map(sum, counts)) for counts in inflight_counts(schedule)])
    each = memory.activations[:, 0] / in_flight
    room = capacity - (memory.peak - memory.activations)[:, 0]
    limits = np.maximum(np.floor(room / np.maximum(each, 1.0)).astype(int), 1)
    limits = np.where(each > 0.0, limits, in_flight)
    spared = np.maximum(limits - 1, np.minimum(limits, in_flight))
    return tuple(np.minimum(spared, schedule.num_microbatches).tolist())
