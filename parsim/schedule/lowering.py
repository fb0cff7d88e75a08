"""Lowering: from compute actions to a list that a rank can run as it stands.

Added are SEND and RECV where a result crosses ranks and, if asked for, UNSHARD and RESHARD of a
stage's sharded parameters and REDUCE_GRAD after a stage's last backward. Order and placement
are those of PyTorch's runtime, action for action.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind
from parsim.schedule.check import check_schedule
from parsim.schedule.messages import senders
from parsim.schedule.schedule import Schedule

MAX_UNSHARDED = 3
"""Stages that a rank keeps unsharded at once: one forward, one backward, one prefetched."""

Row = Sequence[Action]


def lower(schedule: Schedule, *, unshard: bool = False, reduce_grad: bool = False) -> Schedule:
    """Add communication to a compute-only schedule.

    Args:
        schedule: F, B, I and W only.
        unshard: add UNSHARD and RESHARD, at most `MAX_UNSHARDED` stages unsharded per rank.
        reduce_grad: add one REDUCE_GRAD per stage, right after its last B or W.

    Raises:
        ScheduleError: the schedule is lowered already, incomplete or out of order.
        DeadlockError: its order lets some ranks wait for each other forever.
    """
    if not schedule.is_compute_only:
        other = next(a for row in schedule.ranks for a in row if a.kind > Kind.W)
        raise ScheduleError(
            f"{schedule.name}: lower() takes compute actions only (F, B, I, W), but found {other}"
        )
    check_schedule(schedule)
    rows: list[Row] = list(schedule.ranks)
    if unshard:
        rows = [list(_with_unshard(row)) for row in rows]
    if reduce_grad:
        rows = [list(_with_reduce_grad(schedule, row)) for row in rows]
    return replace(schedule, ranks=_with_messages(schedule, rows), cells=())


def _upcoming(row: Row) -> list[tuple[int, ...]]:
    """At each position the next `MAX_UNSHARDED` distinct stages, in order of first use."""
    order: list[int] = []
    upcoming: list[tuple[int, ...]] = []
    for action in reversed(row):
        if action.stage in order:
            order.remove(action.stage)
        order.insert(0, action.stage)
        upcoming.append(tuple(order[:MAX_UNSHARDED]))
    return upcoming[::-1]


def _with_unshard(row: Row) -> Iterator[Action]:
    """Before each action drop the stages not needed soon and fetch those that are."""
    # A set, and iterated as such, because the order of the RESHARDs must be PyTorch's.
    active: set[int] = set()
    for action, soon in zip(row, _upcoming(row), strict=True):
        fetch = [stage for stage in soon if stage not in active]
        for stage in [stage for stage in active if stage not in soon]:
            active.remove(stage)
            yield Action(stage, Kind.RESHARD)
        for stage in fetch:
            active.add(stage)
            yield Action(stage, Kind.UNSHARD)
        yield action
    for stage in active:
        yield Action(stage, Kind.RESHARD)


def _with_reduce_grad(schedule: Schedule, row: Row) -> Iterator[Action]:
    left = {stage: len(schedule.microbatches_of(stage)) for stage, _, _ in row}
    for action in row:
        yield action
        if action.kind == Kind.B or action.kind == Kind.W:
            left[action.stage] -= 1
            if not left[action.stage]:
                yield Action(action.stage, Kind.REDUCE_GRAD)


def _with_messages(schedule: Schedule, rows: Sequence[Row]) -> tuple[tuple[Action, ...], ...]:
    """Run the ranks in turn, one action each; whoever sends also posts the receiver's RECV.

    SEND and RECV get their places at the same moment, so the result cannot deadlock even when
    every SEND waits for its RECV, and both ends of a pair of ranks agree on the order.
    """
    above, below = senders(schedule)
    out: list[list[Action]] = [[] for _ in rows]
    stages, microbatches = range(schedule.num_stages), range(schedule.num_microbatches)
    ready = {(s, Kind.F, mb) for s in stages if schedule.is_first(s) for mb in microbatches}
    last = [stage for stage in stages if schedule.is_last(stage)]
    ready |= {(s, kind, mb) for s in last for kind in (Kind.B, Kind.I) for mb in microbatches}
    position = [0] * len(rows)
    going = [rank for rank, row in enumerate(rows) if row]
    while going:
        for rank in going:
            action = rows[rank][position[rank]]
            stage, kind, mb = action
            if kind <= Kind.I and action not in ready:
                continue
            position[rank] += 1
            out[rank].append(action)
            if kind == Kind.F:
                ready.add((stage + 1, Kind.F, mb))
                target = below[stage]
                if target >= 0:
                    out[rank].append(Action(stage, Kind.SEND_F, mb))
                    out[target].append(Action(stage + 1, Kind.RECV_F, mb))
            elif kind == Kind.B or kind == Kind.I:
                ready.add((stage - 1, Kind.B, mb))
                ready.add((stage - 1, Kind.I, mb))
                target = above[stage]
                if target >= 0:
                    out[rank].append(Action(stage, Kind.SEND_B, mb))
                    out[target].append(Action(stage - 1, Kind.RECV_B, mb))
        going = [rank for rank in going if position[rank] < len(rows[rank])]
    return tuple(map(tuple, out))
