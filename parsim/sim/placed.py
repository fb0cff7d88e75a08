"""Actions of one simulated plan with their ranks and times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parsim.schedule import Action, Kind
from parsim.sim.evaluate import Evaluation
from parsim.sim.maxplus import ClassTimes
from parsim.sim.own_costs import weight_times


@dataclass(frozen=True, slots=True)
class Placed:
    """An action with its rank and times.

    Its rank is free for it from `ready` on. It computes from `start` to `end`; its rank is free
    for the next one at `free`, which is later where sends block; its message is there at `arrival`.
    """

    action: Action
    rank: int
    ready: float
    start: float
    end: float
    free: float
    arrival: float


def placed_actions(found: Evaluation) -> Iterator[Placed]:
    """Walk ranks in order; start = max(previous end, arrival) as in the recurrence.

    Never end - duration: that rounds, and a span could start before the one that it waits for.
    """
    graph, costs, run = found.graph, found.costs, found.run
    if run.finish is None:
        raise RuntimeError("a timeline needs evaluate(..., keep=True)")
    finish = run.finish[:, 0]
    hop = ClassTimes.of(graph, costs).hop[:, 0]
    arrival = finish if costs.blocking_p2p else finish + hop[graph.duration_class]
    heard = np.concatenate([[0.0], arrival])[graph.source]
    position = iter(graph.position.tolist())
    for rank, row in enumerate(graph.schedule.ranks):
        clock = 0.0
        for action, at in zip(row, position, strict=False):
            ready, start, clock = clock, max(clock, float(heard[at])), float(finish[at])
            end = start + _duration(found, action)
            yield Placed(action, rank, ready, start, end, clock, float(arrival[at]))


def _duration(found: Evaluation, action: Action) -> float:
    costs, stage = found.costs, action.stage
    if action.kind == Kind.F:
        return float(costs.forward[stage, 0])
    whole = float(costs.backward[stage, 0])
    if action.kind == Kind.B:
        return whole
    weight = float(weight_times(costs)[stage, 0])
    return weight if action.kind == Kind.W else whole - weight
