"""All named schedules of some sizes, in units: every stage costs the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.errors import ScheduleError
from parsim.plan import Plan
from parsim.plan.rules.schedule import schedule_refusal
from parsim.schedule import build_schedule
from parsim.sim.schedules.asynchronous import (
    AsynchronousRow,
    asynchronous_row,
    unit_versions,
)
from parsim.sim.schedules.rows import ScheduleRow, ScheduleTable
from parsim.sim.schedules.table import Shape, chunks_of, compared
from parsim.sim.schedules.timed import UnitTimes, unit_timeline
from parsim.sim.stages.prices import StagePrices


def schedule_table(
    pp: int,
    num_microbatches: int,
    *,
    v: int = 2,
    times: UnitTimes | None = None,
    only: Sequence[str] = (),
) -> ScheduleTable:
    """Compare all schedules that these sizes allow, in units.

    Args:
        pp: pipeline ranks.
        num_microbatches: of a step.
        v: chunks a rank of the schedules that may have any number of them.
        times: lengths of a rank's F, I and W and of a message; F = I = W = 1 where not given.
        only: names of schedules; all where empty.

    Raises:
        InputError: a name is none, no schedule allows these sizes, or they are too large.
    """
    taken = times or UnitTimes()
    shape = Shape(pp, num_microbatches, lambda name: chunks_of(name, v))
    return compared(
        shape,
        lambda name: _row(name, shape, taken),
        lambda rule: _late_row(rule, shape, taken),
        only=only,
        unit="unit",
        title=f"{pp} ranks, {num_microbatches} micro-batches",
    )


def _prices(pp: int, times: UnitTimes) -> StagePrices:
    """Equal stages in units; bytes in versions of a stage's weights, of which one always stays."""
    each, none = np.ones(pp), np.zeros(pp)
    return StagePrices(
        forward=times.forward * each,
        backward=times.backward * each,
        update=none,
        message=times.message,
        weights=each,
        activations=none,
        static=each,
    )


def _row(name: str, shape: Shape, times: UnitTimes) -> ScheduleRow:
    """One schedule in units.

    Raises:
        ScheduleError: no plan of these sizes may have it.
    """
    chunks = shape.chunks(name)
    _check_sizes(name, shape.pp, shape.num_microbatches, chunks)
    schedule = build_schedule(
        name,
        pp=shape.pp,
        num_microbatches=shape.num_microbatches,
        v=chunks,
        times=(*_lengths_of(times, chunks), times.message, 1.0),
    )
    return ScheduleRow.of(schedule, unit_timeline(schedule, times))


def _late_row(rule: str, shape: Shape, times: UnitTimes) -> AsynchronousRow:
    """One pipeline without flush in units.

    Raises:
        ScheduleError: no plan of these sizes may have it.
    """
    pp, num_microbatches, _ = shape
    _check_sizes(rule, pp, num_microbatches, 1)
    return asynchronous_row(unit_versions(rule, pp), _prices(pp, times), num_microbatches)


def _check_sizes(name: str, pp: int, num_microbatches: int, chunks: int) -> None:
    """Refuse what a scenario with these sizes would be refused for."""
    if pp < 2:
        raise ScheduleError(f"pp={pp}: a pipeline has at least 2 ranks")
    if num_microbatches < 1:
        raise ScheduleError(f"num_microbatches={num_microbatches} is too small; use at least 1")
    plan = Plan(pp=pp, v=chunks, num_microbatches=num_microbatches, schedule=name)
    if message := schedule_refusal(plan):
        raise ScheduleError(message)


def _lengths_of(times: UnitTimes, chunks: int) -> tuple[float, float, float]:
    """F, I and W of one of a rank's chunks."""
    whole = (times.forward, times.backward_input, times.backward_weight)
    forward, inputs, weights = (length / chunks for length in whole)
    return forward, inputs, weights
