"""The pace of a pipeline that never flushes, far from both ends."""

from __future__ import annotations

from math import lcm

from parsim.schedule import Kind
from parsim.schedule.versions import Versions
from parsim.sim.program import by_recurrence
from parsim.sim.recurrence.walk import StepEnd
from parsim.sim.stages.prices import StagePrices
from parsim.strategy.stage_tasks import task_name
from parsim.strategy.weight_versions import without_flush


def steady_state(versions: Versions, prices: StagePrices) -> float:
    """Time between two micro-batches, mean over the batches of an update, seconds.

    Without messages and with enough forwards at the start it is max over stages of
    (F + B + reduce + update / batch) / replicas.
    """
    pp, whole = versions.pp, lcm(versions.batch, *versions.replicas.counts)
    batches = -(-4 * max(pp, versions.replicas.num_ranks) // whole)  # by then all wait for the last
    early, late = batches * whole, 2 * batches * whole
    more = -(-2 * pp // whole) * whole
    end = by_recurrence(prices.on(without_flush(versions, late + more)))
    return (_first_stage(end, late) - _first_stage(end, early)) / (late - early)


def _first_stage(end: StepEnd, microbatch: int) -> float:
    """When the first stage ends a micro-batch's backward."""
    return float(end.times[task_name(0, Kind.B, microbatch)].end[0, 0])
