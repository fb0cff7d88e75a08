"""All named schedules of one shape in one table: time, bubble, memory, weights, messages.

    schedule    time   bubble   overhead   activations   weights   messages
    gpipe       69.0   30.4 %     43.8 %            16         1        224
    1f1b        69.0   30.4 %     43.8 %         8 / 1         1        224

Times and activations are in units of a whole rank (`timed.py`), or of a plan (`planned.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from parsim.errors import InputError, ScheduleError, alternatives, shown
from parsim.plan import Plan
from parsim.plan.rules.schedule import schedule_refusal
from parsim.schedule import CHUNKED, SCHEDULES, V_SHAPED, Schedule, build_schedule
from parsim.schedule.inflight import inflight_counts
from parsim.schedule.messages import senders
from parsim.schedule.versions import RULES
from parsim.sim.schedules.asynchronous import (
    AsynchronousRow,
    asynchronous_row,
    simulated,
    unit_versions,
)
from parsim.sim.schedules.rows import ScheduleRow, ScheduleTable
from parsim.sim.schedules.timed import UnitTimes, unit_timeline
from parsim.sim.stages.prices import StagePrices
from parsim.timelines.timeline import Timeline

_Row = TypeVar("_Row")

MOST_WORK = 200_000
"""Micro-batches on chunks, of all schedules of a table: each takes about 0.1 ms."""
MANY_CHUNKS = 64
"""Chunks of a rank among which the next is chosen in the time that all else takes."""


class ChosenSchedules(NamedTuple):
    """Names of schedules that flush, and rules of those that never do."""

    flushing: tuple[str, ...]
    rules: tuple[str, ...]


def chosen(only: Iterable[str]) -> ChosenSchedules:
    """The named schedules in the order of the catalog; all where none is named.

    Raises:
        InputError: a name that is none.
    """
    names, known = list(only), (*SCHEDULES, *RULES)
    for name in names:
        if name not in known:
            raise InputError(f"--only '{shown(name)}' is no schedule{alternatives(name, known)}")
    return ChosenSchedules(
        flushing=tuple(name for name in SCHEDULES if not names or name in names),
        rules=tuple(name for name in RULES if not names or name in names),
    )


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
    taken, names = times or UnitTimes(), chosen(only)
    check_work(names, pp, num_microbatches, v)
    rows, refused = collected(
        names.flushing, lambda name: unit_row(name, pp, num_microbatches, v, taken)
    )
    late, others = collected(
        names.rules, lambda rule: unit_late_row(rule, pp, num_microbatches, taken)
    )
    check_any((*rows, *late), (*refused, *others))
    return ScheduleTable(
        pp=pp,
        num_microbatches=num_microbatches,
        unit="unit",
        title=f"{pp} ranks, {num_microbatches} micro-batches",
        rows=rows,
        refused=(*refused, *others),
        asynchronous=late,
    )


def check_work(names: ChosenSchedules, pp: int, num_microbatches: int, v: int) -> None:
    """Refuse a table that would take minutes.

    Raises:
        InputError: it has more than `MOST_WORK` micro-batches on chunks, where each counts the
            more, the more chunks its rank has to choose from.
    """
    chunks = [chunks_of(name, v) for name in names.flushing]
    work = sum(pp * num_microbatches * each * (1.0 + each / MANY_CHUNKS) for each in chunks)
    work += simulated(len(names.rules), pp, num_microbatches)
    if work > MOST_WORK:
        count = sum(map(len, names))
        raise InputError(
            f"pp={pp}, num_microbatches={num_microbatches}, v={v}: {count} schedules have the "
            f"work of {work:.3g} micro-batches on few chunks, more than the {MOST_WORK:,} of a "
            f"table; name fewer schedules (--only), or smaller sizes"
        )


def unit_prices(pp: int, times: UnitTimes) -> StagePrices:
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


Refused = tuple[tuple[str, str], ...]
"""Names of schedules that are not possible, each with why."""


def collected(
    names: Sequence[str], row_of: Callable[[str], _Row]
) -> tuple[tuple[_Row, ...], Refused]:
    """The rows of the schedules that are possible, and why the others are not."""
    rows, refused = [], []
    for name in names:
        try:
            rows.append(row_of(name))
        except InputError as error:
            refused.append((name, str(error)))
    return tuple(rows), tuple(refused)


def check_any(rows: Sequence[object], refused: Refused) -> None:
    """Refuse a table without rows.

    Raises:
        InputError: no schedule is possible; says why not.
    """
    if not rows:
        raise InputError("; ".join(dict.fromkeys(why for _, why in refused)))


def chunks_of(name: str, v: int) -> int:
    """Chunks a rank of a named schedule: `v` where it may have any number."""
    return v if name in CHUNKED else 2 if name in V_SHAPED else 1


def unit_row(name: str, pp: int, num_microbatches: int, v: int, times: UnitTimes) -> ScheduleRow:
    """One schedule in units.

    Raises:
        ScheduleError: no plan of these sizes may have it.
    """
    chunks = chunks_of(name, v)
    _check_sizes(name, pp, num_microbatches, chunks)
    schedule = build_schedule(
        name,
        pp=pp,
        num_microbatches=num_microbatches,
        v=chunks,
        times=(*lengths_of(times, chunks), times.message, 1.0),
    )
    return row_of(schedule, unit_timeline(schedule, times))


def unit_late_row(rule: str, pp: int, num_microbatches: int, times: UnitTimes) -> AsynchronousRow:
    """One pipeline without flush in units.

    Raises:
        ScheduleError: no plan of these sizes may have it.
    """
    _check_sizes(rule, pp, num_microbatches, 1)
    return asynchronous_row(unit_versions(rule, pp), unit_prices(pp, times), num_microbatches)


def _check_sizes(name: str, pp: int, num_microbatches: int, chunks: int) -> None:
    """Refuse what a scenario with these sizes would be refused for."""
    if pp < 2:
        raise ScheduleError(f"pp={pp}: a pipeline has at least 2 ranks")
    if num_microbatches < 1:
        raise ScheduleError(f"num_microbatches={num_microbatches} is too small; use at least 1")
    plan = Plan(pp=pp, v=chunks, num_microbatches=num_microbatches, schedule=name)
    if message := schedule_refusal(plan):
        raise ScheduleError(message)


def lengths_of(times: UnitTimes, chunks: int) -> tuple[float, float, float]:
    """F, I and W of one of a rank's chunks."""
    whole = (times.forward, times.backward_input, times.backward_weight)
    forward, inputs, weights = (length / chunks for length in whole)
    return forward, inputs, weights


def row_of(schedule: Schedule, timeline: Timeline) -> ScheduleRow:
    """What a schedule and the times of its actions say."""
    share = schedule.pp / schedule.depth
    by_rank = [list(timeline.on(rank)) for rank in timeline.ranks]
    busy = [sum(span.duration for span in spans) for spans in by_rank]
    spans = [max(s.end for s in row) - min(s.start for s in row) for row in by_rank]
    idle = 1.0 - sum(busy) / len(busy) / timeline.end
    within = max(1.0 - worked / span for worked, span in zip(busy, spans, strict=True))
    pairs = zip(inflight_counts(schedule), schedule.guests, strict=True)
    activations = (max(map(sum, counts)) * share + others for counts, others in pairs)
    return ScheduleRow(
        name=schedule.name,
        v=schedule.v,
        makespan=timeline.end,
        bubble_fraction=_share(idle),
        span_bubble=_share(within),
        activations=tuple(map(float, activations)),
        weights=weights_held(schedule),
        messages=messages_sent(schedule),
        timeline=timeline,
    )


def _share(value: float) -> float:
    """A share that rounding may have left a little off 0."""
    return 0.0 if abs(value) < 1e-12 else value


def weights_held(schedule: Schedule) -> tuple[int, ...]:
    """Copies of its layers' weights on each rank: one for each copy of the model."""
    return (schedule.copies,) * schedule.pp


def messages_sent(schedule: Schedule) -> int:
    """Messages between ranks in a step: results that cross ranks, activations kept elsewhere."""
    above, below = senders(schedule)
    stages = range(schedule.num_stages)
    each = (len(schedule.microbatches_of(stage)) for stage in stages)
    moved = sum((move.evicted >= 0) + (move.loaded >= 0) for move in schedule.moves.values())
    return moved + sum(
        count * ((above[stage] >= 0) + (below[stage] >= 0))
        for stage, count in zip(stages, each, strict=True)
    )
