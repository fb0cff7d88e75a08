"""Does each micro-batch meet each stage exactly once, in order?

One pass over the rows keeps, for each stage and micro-batch, a mask of what has happened; each
kind of action demands some bits before it and sets its own. The end must show all bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind
from parsim.schedule.messages import senders
from parsim.schedule.schedule import Schedule

# What has happened to one micro-batch on one stage. A full backward gives both gradients.
FORWARD, GRAD_IN, GRAD_W, SENT_F, GOT_F, SENT_B, GOT_B = (1 << bit for bit in range(7))

_SETS = (FORWARD, GRAD_IN | GRAD_W, GRAD_IN, GRAD_W, SENT_F, GOT_F, SENT_B, GOT_B)
"""Bits by kind, in the order of `Kind`: F B I W SEND_F RECV_F SEND_B RECV_B."""

_NAMES = {
    FORWARD: "F",
    GRAD_IN: "B",
    GRAD_W: "W",
    SENT_F: "SEND_F",
    GOT_F: "RECV_F",
    SENT_B: "SEND_B",
    GOT_B: "RECV_B",
}


def check_complete(schedule: Schedule) -> None:
    """Refuse a missing, double or locally out of order F, B, I, W, SEND or RECV.

    Every action must already be known to be on its stage's rank with its numbers in range.

    Raises:
        ScheduleError: naming the rank, the action and what it lacks.
    """
    required = _required(schedule)
    state = [bytearray(schedule.num_microbatches) for _ in schedule.stage_rank]
    for rank, row in enumerate(schedule.ranks):
        for stage, kind, microbatch in row:
            if kind >= Kind.UNSHARD:
                continue
            before, need, sets = state[stage][microbatch], required[stage][kind], _SETS[kind]
            if before & need != need or before & sets:
                _refuse(schedule, rank, Action(stage, kind, microbatch), before, need)
            state[stage][microbatch] = before | sets
    for stage, expected in enumerate(_expected(schedule)):
        ours = schedule.microbatches_of(stage)
        for microbatch, mask in enumerate(state[stage]):
            if mask != (expected if microbatch in ours else 0):
                _refuse_end(schedule, stage, microbatch, mask, expected)


def _sources(schedule: Schedule) -> Iterator[tuple[bool, bool]]:
    """Per stage: does a RECV bring its forward input, does one bring its output's gradient?"""
    sends = schedule.has_messages
    for above, below in zip(*senders(schedule), strict=True):
        yield sends and above >= 0, sends and below >= 0


def _required(schedule: Schedule) -> list[tuple[int, ...]]:
    """Per stage and kind, the bits that must be set before an action of that kind."""
    table: list[tuple[int, ...]] = []
    for from_above, from_below in _sources(schedule):
        forward = GOT_F if from_above else 0
        backward = FORWARD | (GOT_B if from_below else 0)
        # In the order of Kind: F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B.
        table.append((forward, backward, backward, GRAD_IN, FORWARD, 0, GRAD_IN, 0))
    return table


def _expected(schedule: Schedule) -> list[int]:
    """Per stage, the bits that must be set in the end."""
    return [
        FORWARD
        | GRAD_IN
        | GRAD_W
        | (GOT_F | SENT_B if from_above else 0)
        | (GOT_B | SENT_F if from_below else 0)
        for from_above, from_below in _sources(schedule)
    ]


def _refuse(schedule: Schedule, rank: int, action: Action, before: int, need: int) -> NoReturn:
    """Say why an action may not come where it does: a second one, or before what it needs."""
    stage, kind, microbatch = action
    row = schedule.ranks[rank]
    indices = [index for index, other in enumerate(row) if other == action]
    twice = bool(before & _SETS[kind]) and len(indices) > 1
    where = f"{schedule.where(rank, indices[twice])}: rank {rank} runs {action}"
    if before & _SETS[kind]:
        raise ScheduleError(
            f"{where} twice; each microbatch of a stage has it once"
            if twice
            else f"{where} beside another backward of stage {stage} microbatch {microbatch}; "
            "allowed: one B, or one I and then one W"
        )
    kinds = [Kind[_NAMES[bit]] for bit in _NAMES if need & ~before & bit]
    if kind == Kind.W:
        kinds = [Kind.I]
    elif kind == Kind.SEND_B:
        kinds = [Kind.B, Kind.I]
    needed = [Action(stage, k, microbatch) for k in kinds]
    later = [a for a in needed if a in row]
    raise ScheduleError(f"{where} before {later[0]}" if later else f"{where} without {needed[0]}")


def _refuse_end(
    schedule: Schedule, stage: int, microbatch: int, mask: int, expected: int
) -> NoReturn:
    """Say what a micro-batch lacks on a stage, or has too much, after the last action."""
    rank = schedule.stage_rank[stage]
    where = f"{schedule.where(rank)}: stage {stage} on rank {rank}"
    missing, surplus = expected & ~mask, mask & ~expected
    if surplus:
        names = [f"{stage}{_NAMES[bit]}{microbatch}" for bit in _NAMES if surplus & bit]
        raise ScheduleError(
            f"{where} runs {names[0]}, but no other rank is at the other end of it; "
            "only results that cross ranks are sent"
        )
    if missing & GRAD_IN:
        missing &= ~GRAD_W  # a full backward gives both
    names = [f"{stage}{_NAMES[bit]}{microbatch}" for bit in _NAMES if missing & bit]
    raise ScheduleError(
        f"{where} lacks {', '.join(names)}; every stage needs F and B (or I and W) of each of "
        f"the {schedule.num_microbatches} microbatches, and a SEND and RECV where they cross ranks"
    )
