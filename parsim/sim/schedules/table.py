"""All named schedules of one shape in one table: time, bubble, memory, weights, messages.

    schedule    time   bubble   overhead   activations   weights   messages
    gpipe       69.0   30.4 %     43.8 %            16         1        224
    1f1b        69.0   30.4 %     43.8 %         8 / 1         1        224

Times and activations are in units of a whole rank (`units.py`), or of a plan (`planned.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from parsim.errors import InputError, alternatives, shown
from parsim.plan.names import AUTO
from parsim.schedule import CHUNKED, SCHEDULES, V_SHAPED
from parsim.schedule.versions import RULES
from parsim.sim.schedules.asynchronous import (
    AsynchronousRow,
    simulated,
)
from parsim.sim.schedules.rows import ScheduleRow, ScheduleTable

_Row = TypeVar("_Row")

MOST_WORK = 200_000
"""Micro-batches on chunks, of all schedules of a table: each takes about 0.1 ms."""
MANY_CHUNKS = 64
"""Chunks of a rank among which the next is chosen in the time that all else takes."""


class Shape(NamedTuple):
    """Pipeline ranks, micro-batches, and chunks a rank of each schedule by its name."""

    pp: int
    num_microbatches: int
    chunks: Callable[[str], int]


class ChosenSchedules(NamedTuple):
    """Names of schedules that flush, and rules of those that never do."""

    flushing: tuple[str, ...]
    rules: tuple[str, ...]


def _chosen(only: Iterable[str], searched: Sequence[str]) -> ChosenSchedules:
    """The named schedules in the order of the catalog, those that are `searched` behind them.

    Raises:
        InputError: a name that is none.
    """
    flushing = (*SCHEDULES, *searched)
    names, known = list(only), (*flushing, *RULES)
    for name in names:
        if name == AUTO and name not in known:
            raise InputError(
                f"--only '{AUTO}' orders the stages of a plan; give one with --scenario"
            )
        if name not in known:
            raise InputError(f"--only '{shown(name)}' is no schedule{alternatives(name, known)}")
    return ChosenSchedules(
        flushing=tuple(name for name in flushing if not names or name in names),
        rules=tuple(name for name in RULES if not names or name in names),
    )


def compared(
    shape: Shape,
    row: Callable[[str], ScheduleRow],
    late_row: Callable[[str], AsynchronousRow],
    *,
    only: Sequence[str],
    unit: str,
    title: str,
    searched: Sequence[str] = (),
) -> ScheduleTable:
    """The table of all schedules that a shape allows.

    Args:
        shape: ranks, micro-batches and chunks.
        row: makes the row of a schedule that flushes.
        late_row: makes that of a rule of those that never do.
        only: names of schedules; all where empty.
        unit: what a makespan is counted in.
        title: what the table is of.
        searched: names of orders that `row` knows beside the catalog's.

    Raises:
        InputError: a name is none, no schedule is possible, or there is too much to simulate.
    """
    names = _chosen(only, searched)
    _check_work(names, shape)
    rows, refused = _collected(names.flushing, row)
    late, others = _collected(names.rules, late_row)
    if not rows and not late:
        raise InputError("; ".join(dict.fromkeys(why for _, why in (*refused, *others))))
    return ScheduleTable(
        pp=shape.pp,
        num_microbatches=shape.num_microbatches,
        unit=unit,
        title=title,
        rows=rows,
        refused=(*refused, *others),
        asynchronous=late,
    )


def _check_work(names: ChosenSchedules, shape: Shape) -> None:
    """Refuse a table that would take minutes.

    Raises:
        InputError: it has more than `MOST_WORK` micro-batches on chunks, where each counts the
            more, the more chunks its rank has to choose from.
    """
    pp, num_microbatches, _ = shape
    chunks = [shape.chunks(name) for name in names.flushing]
    work = sum(pp * num_microbatches * each * (1.0 + each / MANY_CHUNKS) for each in chunks)
    work += simulated(len(names.rules), pp, num_microbatches)
    if work > MOST_WORK:
        count = sum(map(len, names))
        raise InputError(
            f"pp={pp}, num_microbatches={num_microbatches}, v={max(chunks, default=1)}: {count} "
            f"schedules have the work of {work:.3g} micro-batches on few chunks, more than the "
            f"{MOST_WORK:,} of a table; name fewer schedules (--only), or smaller sizes"
        )


Refused = tuple[tuple[str, str], ...]
"""Names of schedules that are not possible, each with why."""


def _collected(
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


def chunks_of(name: str, v: int) -> int:
    """Chunks a rank of a named schedule: `v` where it may have any number."""
    return v if name in CHUNKED else 2 if name in V_SHAPED else 1
