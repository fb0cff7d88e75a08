"""Work to order, and what an order makes of it, counted apart from the search."""

from __future__ import annotations

from parsim.schedule import Kind, Schedule
from parsim.schedule.orders.work import Work

Lengths = tuple[float, ...]


def work(
    forward: Lengths,
    backward: Lengths,
    m: int,
    limits: tuple[int, ...],
    weight: Lengths = (),
    message: float = 0.0,
) -> Work:
    return Work(
        stage_rank=range(len(forward)),
        num_microbatches=m,
        forward=forward,
        backward=backward,
        weight=weight,
        limits=limits,
        message=message,
    )


def made(schedule: Schedule, ours: Work) -> float:
    """End of the last action, one by one; I and W where the work has them, B is both."""
    ends: dict[tuple[int, bool, int], float] = {}
    clock, at, last = [0.0] * schedule.pp, [0] * schedule.pp, schedule.pp - 1
    while any(at[rank] < len(row) for rank, row in enumerate(schedule.ranks)):
        before = list(at)
        for rank, row in enumerate(schedule.ranks):
            while at[rank] < len(row):
                stage, kind, mb = row[at[rank]]
                back = kind in (Kind.B, Kind.I)
                need, hop = None, ours.message
                if kind == Kind.F and stage:
                    need = (stage - 1, True, mb)
                elif back:
                    need = (stage, True, mb) if stage == last else (stage + 1, False, mb)
                    hop = 0.0 if stage == last else hop
                if need is not None and need not in ends:
                    break
                start = max(clock[rank], ends[need] + hop if need else 0.0)
                clock[rank] = start + _length(ours, stage, kind)
                if kind != Kind.W:
                    ends[stage, not back, mb] = clock[rank]
                at[rank] += 1
        assert at != before, "the order hangs"
    return max(clock)


def _length(ours: Work, stage: int, kind: Kind) -> float:
    weight = ours.weight[stage] if ours.weight else 0.0
    whole = ours.backward[stage] + weight
    return (ours.forward[stage], whole, ours.backward[stage], weight)[kind]
