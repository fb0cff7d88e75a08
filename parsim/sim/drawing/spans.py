"""When the ranks of an evaluated plan begin and end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.recurrence.maxplus import ClassTimes
from parsim.sim.utilisation import SimulatorError


class _RankEnds(NamedTuple):
    """End and length of a rank's first action, and the end of its last one, seconds."""

    first: float
    duration: float
    last: float


def device_span(evaluation: Evaluation) -> float:
    """Longest time that one rank spends between its first and last action, seconds.

    Shorter than the makespan where ranks start late: zero-bubble schedules are zero per span.
    """
    classes = range(evaluation.step.num_classes)
    return max(
        ends.last - ends.first + ends.duration
        for number in classes
        for ends in _rank_ends(evaluation, number)
    )


def first_starts(evaluation: Evaluation) -> Array:
    """When each rank's first action starts, of the first class of replicas, seconds, (p,)."""
    return np.array([ends.first - ends.duration for ends in _rank_ends(evaluation, 0)])


def _rank_ends(evaluation: Evaluation, number: int) -> Iterator[_RankEnds]:
    """Walk the ranks of a class, whose finish times were kept."""
    compiled, costs = evaluation.step.compiled[number], evaluation.step.column(number)
    finish = evaluation.runs[number].finish
    if finish is None:
        raise SimulatorError("the finish times were not kept")
    times = ClassTimes.of(compiled, costs)
    durations = (times.blocking() if costs.blocking_p2p else times).duration
    begin = 0
    for row in compiled.schedule.ranks:
        positions = compiled.position[begin : begin + len(row)]
        first = int(positions[0])
        yield _RankEnds(
            first=float(finish[first, 0]),
            duration=float(durations[compiled.duration_class[first], 0]),
            last=float(finish[positions, 0].max()),
        )
        begin += len(row)
