"""Micro-batches in flight on each stage when its rank keeps the most bytes."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, ratio
from parsim.cost.job import Job
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.schedule.inflight import inflight_counts, split_counts
from parsim.sim.step.kept_bytes import frees_before_weights, kept_for_weights


def in_flight_and_whole(
    job: Job, table: PlanTable, kept: Array, schedule: Schedule
) -> tuple[Array, Array]:
    """(micro-batches in flight, those of them that wait for their I) at the peak, (S, B).

    One that waits for its W only counts as the share that W needs, where I frees the rest.
    """
    if not frees_before_weights(job, table, schedule.name):
        in_flight = in_flight_at_peak(kept, schedule)
        return in_flight, in_flight
    after = schedule.in_copies(kept_for_weights(job, table))
    whole, rest = np.zeros_like(kept), np.zeros_like(kept)
    for rank, moments in enumerate(split_counts(schedule)):
        stages = list(schedule.stages_on(rank))
        counts = np.array(moments, dtype=np.float64)
        both = np.concatenate([kept[stages], after[stages]])
        highest = counts[(counts @ both).argmax(axis=0)].T
        whole[stages], rest[stages] = np.split(highest, 2)
    waiting = rest * after
    return whole + ratio(waiting, kept), whole


def in_flight_at_peak(kept: Array, schedule: Schedule) -> Array:
    """Micro-batches in flight on each stage when its rank keeps the most bytes, (S, B)."""
    in_flight = np.zeros_like(kept)
    for rank, moments in enumerate(inflight_counts(schedule)):
        stages = list(schedule.stages_on(rank))
        counts = np.array(moments, dtype=np.float64)
        in_flight[stages] = counts[(counts @ kept[stages]).argmax(axis=0)].T
    return in_flight


def guest_bytes(kept: Array, schedule: Schedule) -> Array:
    """Bytes of other ranks' micro-batches on each rank at their most, (p, B): its partner's."""
    if schedule.limit is None:
        return np.zeros((schedule.pp, kept.shape[1]))
    return np.asarray(np.array(schedule.guests)[:, None] * kept[::-1])
