"""Does a schedule ever stop? Run it without time, and name who waits for whom.

The order of events does not matter to the answer: an action that may run may run forever after,
so one greedy run decides. Actions that are in order on their own rank are not looked at again;
`check` has looked at them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from parsim.schedule.actions import Action, Kind
from parsim.schedule.messages import mate, one_by_one
from parsim.schedule.schedule import Schedule

Rows = Sequence[Sequence[Action]]
Need = Callable[[Action], Action | None]


class Wait(NamedTuple):
    """A rank that stands at `action` until rank `other` has run `wanted`."""

    rank: int
    action: Action
    other: int
    wanted: Action

    def __str__(self) -> str:
        return f"rank {self.rank} waits at {self.action} for rank {self.other} to run {self.wanted}"


def waiting_cycle(schedule: Schedule, *, rendezvous: bool) -> tuple[Wait, ...]:
    """The ranks of a cycle, each waiting for the next; empty if every rank reaches its end.

    With rendezvous, a SEND waits until its RECV is at the head of the other rank; otherwise it
    never waits. A schedule without messages is, with rendezvous, taken with each RECV right
    before its consumer and each SEND right after its producer.
    """
    silent = not schedule.has_messages
    rows = one_by_one(schedule) if rendezvous and silent else schedule.ranks
    need = _needs(schedule, crossing=silent and not rendezvous, rendezvous=rendezvous)
    heads = _run(rows, need, rendezvous)
    return _cycle(heads, need, dict(enumerate(schedule.stage_rank)))


def _needs(schedule: Schedule, *, crossing: bool, rendezvous: bool) -> Need:
    """What must have happened before an action, beyond the order on its own rank.

    `crossing`: results cross ranks unsaid, as in a compute-only schedule; else RECVs bring them.
    """
    waits_for_mate = {Kind.RECV_F, Kind.RECV_B}
    if rendezvous:
        waits_for_mate |= {Kind.SEND_F, Kind.SEND_B}
    brought = _results(schedule, crossing=crossing)

    def need(action: Action) -> Action | None:
        return mate(action) if action.kind in waits_for_mate else brought(action)

    return need


def _results(schedule: Schedule, *, crossing: bool) -> Need:
    """Whose result a forward or a backward waits for, where no RECV brings it."""
    rank_of = schedule.stage_rank
    split = frozenset(a for a in chain(*schedule.ranks) if a.kind == Kind.I)

    def gradient(stage: int, microbatch: int) -> Action:
        whole = Action(stage, Kind.I, microbatch)
        return whole if whole in split else Action(stage, Kind.B, microbatch)

    def result(action: Action) -> Action | None:
        stage, kind, microbatch = action
        forward = kind == Kind.F
        if not (forward or kind == Kind.B or kind == Kind.I):
            return None
        at_end = schedule.is_first(stage) if forward else schedule.is_last(stage)
        other = stage - 1 if forward else stage + 1
        if at_end or not (crossing or rank_of[other] == rank_of[stage]):
            return None
        return Action(other, Kind.F, microbatch) if forward else gradient(other, microbatch)

    return result


def _run(rows: Rows, need: Need, rendezvous: bool) -> dict[int, Action]:
    """Run every rank as far as it goes; the action at which each unfinished rank waits."""
    run = _Run(rows, need, rendezvous)
    while run.ready:
        run.advance(run.ready.pop())
    return run.heads


class _Run:
    """How far each rank has come, and which ranks wait for an action that has not happened."""

    def __init__(self, rows: Rows, need: Need, rendezvous: bool) -> None:
        self.rows, self.need, self.rendezvous = rows, need, rendezvous
        self.position = [0] * len(rows)
        self.happened: set[Action] = set()
        self.waiting: dict[Action, list[int]] = {}
        self.ready = list(range(len(rows)))

    def advance(self, rank: int) -> None:
        """Take a rank along its row until it must wait."""
        row, here = self.rows[rank], self.position[rank]
        while here < len(row):
            action = row[here]
            if self.rendezvous and (action.kind == Kind.RECV_F or action.kind == Kind.RECV_B):
                self._happen(action)  # it is at the head: its SEND, which waits for that, may go
            wanted = self.need(action)
            if wanted is not None and wanted not in self.happened:
                self.waiting.setdefault(wanted, []).append(rank)
                break
            self._happen(action)
            here += 1
        self.position[rank] = here

    def _happen(self, action: Action) -> None:
        self.happened.add(action)
        if action in self.waiting:
            self.ready.extend(self.waiting.pop(action))

    @property
    def heads(self) -> dict[int, Action]:
        """The action at which each rank waits that is not at its end."""
        stopped = enumerate(zip(self.rows, self.position, strict=True))
        return {rank: row[here] for rank, (row, here) in stopped if here < len(row)}


def _cycle(heads: dict[int, Action], need: Need, rank_of: dict[int, int]) -> tuple[Wait, ...]:
    """Follow who waits for whom until a rank comes again."""
    if not heads:
        return ()
    path: list[int] = []
    rank = min(heads)
    while rank not in path:
        path.append(rank)
        rank = rank_of[_wanted(heads[rank], need).stage]
    cycle = path[path.index(rank) :]
    start = cycle.index(min(cycle))
    return tuple(
        Wait(r, heads[r], rank_of[wanted.stage], wanted)
        for r in cycle[start:] + cycle[:start]
        for wanted in (_wanted(heads[r], need),)
    )


def _wanted(action: Action, need: Need) -> Action:
    wanted = need(action)
    if wanted is None:
        raise AssertionError(f"{action} waits for nothing")
    return wanted
