"""What each rank holds over the time of one simulated plan."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from parsim.arrays import Array, sorted_values
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import stage_cut
from parsim.schedule import Kind, Schedule
from parsim.sim.drawing.placed_actions import Placed
from parsim.sim.memory.categories import STATIC
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.step.kept_bytes import frees_before_weights, kept_for_weights, stage_kept
from parsim.timelines.timeline import MemoryCurve


def memory_curves(
    evaluation: Evaluation, number: int, placed: list[Placed]
) -> Iterator[MemoryCurve]:
    """Draw a class: static bytes, and what each forward keeps until its backward ends; of I, W's.

    Logits, temporary and communication buffers stand on top while actions run, so that the
    highest point is the predicted peak and the end is back at the static bytes.
    """
    memory, schedule = evaluation.memory_of(number), evaluation.step.schedule(number)
    peak, static = memory.peak[:, 0], memory.static[:, 0]
    kept, after = _kept(evaluation, number)
    for rank in range(schedule.pp):
        times, kept_now = _kept_over_time(placed, rank, schedule, kept, after)
        buffers = float(peak[rank] - static[rank] - kept_now.max())
        on_top = np.where(times < times[-1], buffers, 0.0)
        level = float(static[rank]) + kept_now + on_top
        yield MemoryCurve(
            rank=rank,
            times=tuple(times.tolist()),
            bytes=tuple(level.tolist()),
            static=float(static[rank]),
            activations=tuple(kept_now.tolist()),
            parts={name: float(getattr(memory, name)[rank, 0]) for name in STATIC},
        )


def _kept(evaluation: Evaluation, number: int) -> tuple[Array, Array | None]:
    """What a stage keeps of a micro-batch, and what of it W needs, where I frees the rest."""
    step = evaluation.step
    group, schedule, table = step.group(0, number), step.schedule(number), step.pricing.table
    job, layers = step.job_on(group), step.pricing.layers(group)
    rows = stage_kept(job, table, layers, layer_counts(job.model, stage_cut(job, table)))
    kept = schedule.in_copies(rows)[:, 0]
    kept = np.maximum(kept, 0.0)  # eager PyTorch's composed operators are moved and not among it
    if not frees_before_weights(job, table, schedule.name):
        return kept, None
    return kept, schedule.in_copies(kept_for_weights(job, table))[:, 0]


def _kept_over_time(
    placed: list[Placed],
    rank: int,
    schedule: Schedule,
    kept: NDArray[np.float64],
    after: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times, and bytes that a rank's micro-batches in flight keep from each to the next."""
    if schedule.limit is not None:
        return _with_guests(placed, rank, kept, schedule)
    stages = list(schedule.stages_on(rank))
    mine = [item for item in placed if item.rank == rank]
    times, counts = _in_flight(mine, stages, frees=after is not None)
    rest = kept if after is None else after
    return times, counts @ np.concatenate([kept[stages], rest[stages]])


def _with_guests(
    placed: list[Placed], rank: int, kept: NDArray[np.float64], schedule: Schedule
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and bytes of a rank that keeps its partner's micro-batches, or its own there.

    A rank keeps so many as its limit; all but one less than that of a rank with more lie on its
    partner, which has one of them twice while it is on its way.
    """
    limit, other = schedule.limit or 0, schedule.pp - 1 - rank
    counts = [
        _in_flight([item for item in placed if item.rank == of], [of], frees=False)
        for of in (rank, other)
    ]
    times = sorted_values(np.concatenate([times for times, _ in counts]))
    ours, theirs = (
        flying[np.searchsorted(at, times, side="right") - 1, 0] for at, flying in counts
    )
    on_partner = np.where(theirs > limit, theirs - limit + 1.0, 0.0)
    return times, np.minimum(ours, limit) * kept[rank] + on_partner * kept[other]


def _in_flight(
    placed: list[Placed], stages: list[int], *, frees: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Micro-batches in flight on each stage over time, zero before the first action.

    Behind the stages' columns are those of micro-batches that wait for their W only, where I frees
    what W does not need. Whole numbers, so that nothing is left over at the end; what ends at a
    moment is freed before what starts then.
    """
    changes: list[tuple[float, int, int]] = []
    for item in placed:
        kind, chunk = item.action.kind, stages.index(item.action.stage)
        waiting = len(stages) + chunk
        if kind == Kind.F:
            changes.append((item.start, 1, chunk))
        elif kind == Kind.I and frees:
            changes += [(item.end, -1, chunk), (item.end, 1, waiting)]
        elif kind != Kind.I:
            changes.append((item.end, -1, waiting if kind == Kind.W and frees else chunk))
    changes.sort()
    steps = np.zeros((len(changes) + 1, 2 * len(stages)))
    for i, (_, change, column) in enumerate(changes, start=1):
        steps[i, column] = change
    times = np.array([0.0, *(time for time, _, _ in changes)])
    return times, steps.cumsum(axis=0)
