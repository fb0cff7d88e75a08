"""Which results cross ranks: F sends its output up a stage, B and I their gradient down one."""

from __future__ import annotations

from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule


def upstream(schedule: Schedule) -> tuple[int, ...]:
    """For each stage the rank that must send it its forward input; -1 where none must."""
    rank_of = schedule.stage_rank
    return tuple(
        -1 if stage == 0 or rank_of[stage - 1] == rank else rank_of[stage - 1]
        for stage, rank in enumerate(rank_of)
    )


def downstream(schedule: Schedule) -> tuple[int, ...]:
    """For each stage the rank that must send it its output's gradient; -1 where none must."""
    rank_of = schedule.stage_rank
    last = len(rank_of) - 1
    return tuple(
        -1 if stage == last or rank_of[stage + 1] == rank else rank_of[stage + 1]
        for stage, rank in enumerate(rank_of)
    )


def mate(message: Action) -> Action:
    """The RECV that belongs to a SEND, or the SEND that belongs to a RECV."""
    stage, kind, microbatch = message
    if kind == Kind.SEND_F:
        return Action(stage + 1, Kind.RECV_F, microbatch)
    if kind == Kind.RECV_F:
        return Action(stage - 1, Kind.SEND_F, microbatch)
    if kind == Kind.SEND_B:
        return Action(stage - 1, Kind.RECV_B, microbatch)
    return Action(stage + 1, Kind.SEND_B, microbatch)


def one_by_one(schedule: Schedule) -> tuple[tuple[Action, ...], ...]:
    """Rows of a schedule without messages, with RECVs and SENDs put around each F, B and I.

    This is the plainest lowering, the one that blocking sends punish; `lower` is the safe one.
    """
    above, below = upstream(schedule), downstream(schedule)

    def expand(action: Action) -> tuple[Action, ...]:
        stage, kind, mb = action
        if kind > Kind.I:
            return (action,)
        source, target = (above, below) if kind == Kind.F else (below, above)
        recv, send = (Kind.RECV_F, Kind.SEND_F) if kind == Kind.F else (Kind.RECV_B, Kind.SEND_B)
        before = (Action(stage, recv, mb),) if source[stage] >= 0 else ()
        after = (Action(stage, send, mb),) if target[stage] >= 0 else ()
        return (*before, action, *after)

    return tuple(tuple(a for action in row for a in expand(action)) for row in schedule.ranks)
