"""Long schedules from short ones: far from both ends every micro-batch repeats the one before.

    6 micro-batches | 0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 | 0F4 0I2 0W2 0F5 0I3 0W3 0I4 0W4 0I5 0W5
    7 micro-batches | 0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1   0F4 0I2 0W2 | 0F5 0I3 0W3 0F6 ... 0I6 0W6
                                                        ^ inserted, and all behind it one later

What a further micro-batch inserts into a row is inserted again for each one more. So a schedule
that is searched for, or moved slot by slot, costs no more than a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from parsim.schedule.actions import Action
from parsim.schedule.orders.weight_fill import Rows

Row = tuple[Action, ...]
"""The actions of one rank, in order."""

LONG = 1000
"""Micro-batches up to which a schedule is built as it is: some tenths of a second."""

SHORT = 16
"""Micro-batches for each rank of the short schedules: ends and a middle."""

PERIODS = (1, 2, 3, 4)
"""Micro-batches after which a row is tried to repeat: gaps filled in turn have longer periods."""


def stretched(build: Callable[[int], Rows], pp: int, num_microbatches: int) -> Rows:
    """The rows that `build` makes of so many micro-batches, from those of few where there are many.

    Where the middle does not repeat they are built as they are. Repeating leaves what a rank holds
    as it is, for the middle begins and ends alike. At the ratio 1:1:1 the rows are those of `build`
    to the last action; at others the gaps of a long middle may be filled in another order.
    """
    short = SHORT * pp
    if num_microbatches <= max(LONG, short + 2 * max(PERIODS)):
        return build(num_microbatches)
    for period in PERIODS:
        more, rest = divmod(num_microbatches - short, period)
        rows = build(short + rest)
        longer = build(short + rest + period)
        pairs = zip(rows, longer, strict=True)
        repeated = [_repeated(row, other, period, more) for row, other in pairs]
        if all(repeated):
            return tuple(row for row in repeated if row is not None)
    return build(num_microbatches)


def repeating(build: Callable[[int], Rows], short: int, num_microbatches: int) -> Rows:
    """The rows that `build` makes of many micro-batches, from those of about `short` ones.

    Those few must be enough for a middle that repeats and that neither end reaches, as they are of
    blocks and of gaps filled at the ratio 1:1:1; then a row is the same to its last action. Where
    no middle repeats, rows are built as they are.
    """
    if num_microbatches > short + max(PERIODS):
        for period in PERIODS:
            more, rest = divmod(num_microbatches - short, period)
            rows = [_with_more(row, period, more) for row in build(short + rest)]
            if all(rows):
                return tuple(row for row in rows if row is not None)
    return build(num_microbatches)


def _with_more(row: Row, period: int, times: int) -> Row | None:
    """The row with its middle so many times more; None where that does not repeat.

    Two repetitions must be alike, those before and behind the half of the row.
    """
    count = 1 + max(action.microbatch for action in row)
    half, actions = len(row) // 2, len(row) // count * period
    middle = row[half - actions : half]
    if _later(middle, period) != row[half : half + actions]:
        return None
    more = [action for i in range(times) for action in _later(middle, i * period)]
    return (*row[: half - actions], *more, *_later(row[half - actions :], times * period))


def _repeated(row: Row, longer: Row, period: int, times: int) -> Row | None:
    """The row with what `longer` inserts so many times; None where it changes more than that."""
    pairs = zip(row, longer, strict=False)
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    end = start + len(longer) - len(row)
    if _later(row[start:], period) != longer[end:]:
        return None
    inserted = longer[start:end]
    middle = [action for i in range(times) for action in _later(inserted, i * period)]
    return (*row[:start], *middle, *_later(row[start:], times * period))


def _later(row: Row, by: int) -> Row:
    """These actions, of micro-batches so many later."""
    return tuple(Action(stage, kind, mb + by) for stage, kind, mb in row)
