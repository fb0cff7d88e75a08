"""Actions of one class of replicas with ranks and times, and the chain that its phase waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.schedule import Action
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.recurrence.maxplus import ClassTimes
from parsim.sim.step.compiled_schedule import KINDS
from parsim.sim.step.schedule_costs import action_seconds


@dataclass(frozen=True, slots=True)
class Placed:
    """An action with its rank and times.

    Its rank is free for it from `ready` on. It computes from `start` to `end`; its rank is free
    for the next one at `free`, which is later where sends block; its message, of `hop` seconds, is
    there at `arrival`. `cause` is the action whose result it waited for.
    """

    action: Action
    rank: int
    ready: float
    start: float
    end: float
    free: float
    arrival: float
    hop: float
    cause: Action | None


def placed_actions(evaluation: Evaluation, number: int) -> Iterator[Placed]:
    """Walk the ranks of a class in order; start = max(previous end, arrival) as in the recurrence.

    Never end - duration: that rounds, and a span could start before the one that it waits for.
    """
    compiled, costs = evaluation.step.compiled[number], evaluation.step.column(number)
    ends, arrival, hop = _moments(evaluation, number)
    heard = np.concatenate([[0.0], arrival])[compiled.source]
    rows = compiled.schedule.ranks
    flat = [action for row in rows for action in row]
    at_position = dict(zip(compiled.position.tolist(), flat, strict=False))
    seconds = action_seconds(costs)
    positions = iter(compiled.position.tolist())
    for rank, row in enumerate(rows):
        clock = 0.0
        for action, position in zip(row, positions, strict=False):
            ready, start, clock = clock, max(clock, float(heard[position])), float(ends[position])
            yield Placed(
                action=action,
                rank=rank,
                ready=ready,
                start=start,
                end=start + float(seconds[action.kind][action.stage, 0]),
                free=clock,
                arrival=float(arrival[position]),
                hop=float(hop[action.stage * KINDS + action.kind]),
                cause=at_position.get(int(compiled.source[position]) - 1),
            )


def _moments(evaluation: Evaluation, number: int) -> tuple[Array, Array, Array]:
    """When actions of a class let go of their ranks, when messages arrive, and seconds of hops.

    The first two are by position, the last by kind of action and stage.
    """
    compiled, costs = evaluation.step.compiled[number], evaluation.step.column(number)
    finish = evaluation.runs[number].finish
    if finish is None:
        raise RuntimeError("a timeline needs evaluate(..., keep=True)")
    ends = finish[:, 0]
    hop = ClassTimes.of(compiled, costs).hop[:, 0]
    return ends, ends if costs.blocking_p2p else ends + hop[compiled.duration_class], hop


def critical_path(placed: Sequence[Placed]) -> list[Placed]:
    """Walk back from the last action: whichever predecessor ends when this one starts."""
    by_action = {item.action: item for item in placed}
    before: dict[Action, Placed] = {}
    last: dict[int, Placed] = {}
    for item in placed:
        if item.rank in last:
            before[item.action] = last[item.rank]
        last[item.rank] = item
    current: Placed | None = max(last.values(), key=lambda item: item.free)
    path: list[Placed] = []
    while current is not None:
        path.append(current)
        source = by_action[current.cause] if current.cause is not None else None
        current = _later(source, before.get(current.action))
    return path[::-1]


def _later(source: Placed | None, previous: Placed | None) -> Placed | None:
    """The predecessor that let an action start last."""
    if source is None or previous is None:
        return source or previous
    return source if source.arrival >= previous.free else previous
