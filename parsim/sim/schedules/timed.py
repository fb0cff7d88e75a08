"""A schedule with times in units: when each action runs where all stages cost the same.

The unit is the forward of a rank's whole share of the layers, so that schedules with other numbers
of chunks compare: a stage of one of v chunks takes 1/v of it.

    unit:  F = 1, I = 1, W = 1, B = I + W        1F1B, two ranks:  | 0F0 | 0F1 |   0B0   | ...
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.errors import InputError
from parsim.schedule import Kind, Schedule
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import compile_schedule
from parsim.timelines.kinds import Stream
from parsim.timelines.timeline import Span, Timeline, ordered

COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W)
"""Kinds of action that take time, by their number."""


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """Lengths of a rank's whole F, I and W, and of a message between ranks, in any one unit."""

    forward: float = 1.0
    backward_input: float = 1.0
    backward_weight: float = 1.0
    message: float = 0.0

    def __post_init__(self) -> None:
        """Refuse lengths that no schedule can have.

        Raises:
            InputError: a length is negative or not finite, or F or B takes no time.
        """
        lengths = (self.forward, self.backward_input, self.backward_weight, self.message)
        finite = all(0.0 <= length < np.inf for length in lengths)
        if not finite or min(self.forward, self.backward) <= 0.0:
            raise InputError(
                f"times {', '.join(f'{length:g}' for length in lengths)} (F, I, W, a message): "
                f"allowed are finite lengths from 0 on, with F > 0 and I + W > 0"
            )

    @property
    def backward(self) -> float:
        """B = I + W."""
        return self.backward_input + self.backward_weight

    def of(self, kind: Kind) -> float:
        """The length of an action of a whole rank."""
        whole = (self.forward, self.backward, self.backward_input, self.backward_weight)
        return whole[kind]


def unit_timeline(schedule: Schedule, times: UnitTimes) -> Timeline:
    """Run a schedule of equal stages by the max-plus recurrence; a second is a unit.

    Raises:
        DeadlockError: its order lets ranks wait for each other forever.
    """
    starts, ends = _run(schedule, times)
    actions = ((rank, action) for rank, row in enumerate(schedule.ranks) for action in row)
    spans = (
        Span(rank, Stream.COMPUTE, action.kind.name, start, end, action.stage, action.microbatch)
        for (rank, action), start, end in zip(actions, starts, ends, strict=True)
    )
    return Timeline(spans=ordered(spans), meta={"source": "predicted", "plan": schedule.name})


def _run(schedule: Schedule, times: UnitTimes) -> tuple[list[float], list[float]]:
    """Start and end of each action, in the order of the rows."""
    share = schedule.pp / schedule.depth
    length = np.array([share * times.of(kind) for kind in COMPUTE])
    seconds = {
        kind: np.full((schedule.num_stages, 1), value)
        for kind, value in zip(COMPUTE, length, strict=True)
    }
    hops = np.full((schedule.num_stages - 1, 1), times.message)
    compiled = compile_schedule(schedule)
    finish = run(compiled, ClassTimes.on(schedule, seconds, hops), keep=True).finish
    if finish is None:
        raise RuntimeError("the finish times were not kept")
    ends = finish[compiled.position, 0]
    starts = ends - length[schedule.table()[:, 1]]
    return starts.tolist(), ends.tolist()
