"""Which results cross ranks: F sends its output up a stage, B and I their gradient down one."""

from __future__ import annotations

from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule

_MATES = {
    Kind.SEND_F: (1, Kind.RECV_F),
    Kind.RECV_F: (-1, Kind.SEND_F),
    Kind.SEND_B: (-1, Kind.RECV_B),
    Kind.RECV_B: (1, Kind.SEND_B),
}


def senders(schedule: Schedule) -> tuple[list[int], list[int]]:
    """For each stage the ranks that must send it its forward input, and its output's gradient.

    -1 where none must: at an end of the pipeline, and where the rank itself has the neighbour.
    """
    rank_of, stages = schedule.stage_rank, range(schedule.num_stages)

    def crossing(stage: int, other: int) -> int:
        return -1 if rank_of[other] == rank_of[stage] else rank_of[other]

    above = [-1 if schedule.is_first(s) else crossing(s, s - 1) for s in stages]
    below = [-1 if schedule.is_last(s) else crossing(s, s + 1) for s in stages]
    return above, below


def mate(message: Action) -> Action:
    """The RECV that belongs to a SEND, or the SEND that belongs to a RECV."""
    step, kind = _MATES[message.kind]
    return Action(message.stage + step, kind, message.microbatch)


def one_by_one(schedule: Schedule) -> tuple[tuple[Action, ...], ...]:
    """Rows of a schedule without messages, with RECVs and SENDs put around each F, B and I.

    This is the plainest lowering, the one that blocking sends punish; `lower` is the safe one.
    """
    above, below = senders(schedule)

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
