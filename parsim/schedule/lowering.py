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

_RECEIVED = {Kind.SEND_F: Kind.RECV_F, Kind.SEND_B: Kind.RECV_B}


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
    lists = _LoweredRows(schedule)
    position = [0] * len(rows)
    going = [rank for rank, row in enumerate(rows) if row]
    while going:
        for rank in going:
            action = rows[rank][position[rank]]
            if lists.may_run(action):
                position[rank] += 1
                lists.run(rank, action)
        going = [rank for rank in going if position[rank] < len(rows[rank])]
    return tuple(map(tuple, lists.rows))


class _LoweredRows:
    """The ranks' lists with messages as far as they have run, and the actions whose input is there.

    `rows` are the lists. Forwards of first stages and backwards of last ones wait for no message.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.rows: list[list[Action]] = [[] for _ in schedule.ranks]
        self._above, self._below = senders(schedule)
        stages, microbatches = range(schedule.num_stages), range(schedule.num_microbatches)
        first = [stage for stage in stages if schedule.is_first(stage)]
        last = [stage for stage in stages if schedule.is_last(stage)]
        self._ready = {(stage, Kind.F, mb) for stage in first for mb in microbatches}
        for kind in (Kind.B, Kind.I):
            self._ready |= {(stage, kind, mb) for stage in last for mb in microbatches}

    def may_run(self, action: Action) -> bool:
        """Whether the action's input is there; updates of weights need none."""
        return action.kind > Kind.I or action in self._ready

    def run(self, rank: int, action: Action) -> None:
        """Append the action, and where its result crosses ranks its SEND and the RECV there."""
        stage, kind, mb = action
        self.rows[rank].append(action)
        if kind == Kind.F:
            self._ready.add((stage + 1, Kind.F, mb))
            self._pass_on(rank, self._below[stage], Action(stage, Kind.SEND_F, mb), stage + 1)
        elif kind == Kind.B or kind == Kind.I:
            self._ready |= {(stage - 1, Kind.B, mb), (stage - 1, Kind.I, mb)}
            self._pass_on(rank, self._above[stage], Action(stage, Kind.SEND_B, mb), stage - 1)

    def _pass_on(self, rank: int, target: int, send: Action, stage: int) -> None:
        """Append a SEND and, to the target rank's list, the RECV of `stage`; -1: no message."""
        if target >= 0:
            self.rows[rank].append(send)
            self.rows[target].append(Action(stage, _RECEIVED[send.kind], send.microbatch))
