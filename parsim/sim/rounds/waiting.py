"""Where ranks wait for one another in a run of rounds: queues, tasks, meetings, and gates."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from parsim.arrays import Array
from parsim.sim.rounds.passages import Passed, Span
from parsim.strategy.program import StepProgram
from parsim.strategy.task import Task

Served = tuple[float, float]
"""When the last of the queues that a rank passes began, and when all have served it."""


class Queues:
    """When each queue is free again, and for how many seconds it has served."""

    def __init__(self, count: int, spans: Sequence[Span]) -> None:
        """All are free, and have served nobody."""
        self.free_at = array("d", [0.0]) * count
        self._busy = [0.0] * count
        free = np.frombuffer(self.free_at)
        self._spans = [(free[span.begin : span.end], span.seconds, span.holes) for span in spans]
        self._served = [0] * len(spans)
        self._bounds = [(span.begin, span.end) for span in spans]

    def serve(self, asked: Iterable[tuple[int, float]], ready: float, end: float) -> Served:
        """Pass queues; when the last of them began, and when all have served or `end`, if later."""
        start, free_at, busy = ready, self.free_at, self._busy
        for queue, seconds in asked:
            begin = free_at[queue]
            begin = max(begin, ready)
            free_at[queue] = done = begin + seconds
            busy[queue] += seconds
            start, end = max(start, begin), max(end, done)
        return start, end

    def serve_spans(self, asked: Iterable[int], ready: float, served: Served) -> Served:
        """Pass spans of queues too, as if one by one."""
        start, end = served
        for span in asked:
            free, seconds, holes = self._spans[span]
            beside = [free[hole] for hole in holes]
            np.maximum(free, ready, out=free)
            for hole in holes:
                free[hole] = ready
            begin = float(np.maximum.reduce(free))
            free += seconds
            for hole, kept in zip(holes, beside, strict=True):
                free[hole] = kept
            self._served[span] += 1
            start, end = max(start, begin), max(end, begin + seconds)
        return start, end

    def last_served(self, asked: Passed, spans: Iterable[int]) -> Iterator[tuple[int, Served]]:
        """What queues and spans that were just passed served last: from when to when."""
        passed = list(asked)
        for span in spans:
            (begin, end), (_, seconds, holes) = self._bounds[span], self._spans[span]
            passed += [(row, seconds) for row in range(begin, end) if row - begin not in holes]
        for queue, seconds in passed:
            yield queue, (self.free_at[queue] - seconds, self.free_at[queue])

    def occupy(self, queue: int, seconds: float) -> None:
        """Count seconds that a queue serves beside the others."""
        self._busy[queue] += seconds

    @property
    def busy(self) -> Array:
        """Seconds that each queue has served."""
        busy = np.array(self._busy)
        for (begin, end), (_, seconds, holes), count in zip(
            self._bounds, self._spans, self._served, strict=True
        ):
            passed = np.ones(end - begin)
            passed[list(holes)] = 0.0
            busy[begin:end] += passed * (count * seconds)
        return busy


@dataclass(slots=True)
class Completions:
    """Tasks that others wait for, by task and round: how many ranks still lack, when all are done.

    `at` has those that all their ranks have done.
    """

    missing: dict[tuple[int, int], int] = field(default_factory=dict)
    latest: dict[tuple[int, int], float] = field(default_factory=dict)
    at: dict[tuple[int, int], float] = field(default_factory=dict)

    def note(self, key: tuple[int, int], end: float, ranks: int) -> bool:
        """One of the ranks of a task has done it; whether it is the last one."""
        self.missing[key] = self.missing.get(key, ranks) - 1
        self.latest[key] = max(end, self.latest.get(key, 0.0))
        if self.missing[key]:
            return False
        self.at[key] = self.latest[key]
        return True


@dataclass(slots=True)
class Gathering:
    """A task that ranks do together: who has come to it, and when the last came."""

    come: list[int] = field(default_factory=list)
    latest: float = 0.0


@dataclass(slots=True)
class Meetings:
    """Tasks that ranks do together, by task and round, and the rounds that quorums have closed.

    `closed` has for each task the first round that is still open. `dropped` counts those who came
    too late, `skipped` the rounds that they never began.
    """

    gathered: dict[tuple[int, int], Gathering] = field(default_factory=dict)
    closed: dict[int, int] = field(default_factory=dict)
    dropped: int = 0
    skipped: int = 0

    def join(self, key: tuple[int, int], rank: int, ready: float) -> Gathering:
        """A rank comes to a task of a round; who has come so far."""
        meeting = self.gathered.setdefault(key, Gathering())
        meeting.come.append(rank)
        meeting.latest = max(meeting.latest, ready)
        return meeting

    def is_closed(self, task: int, number: int) -> bool:
        """Whether a quorum has done a task of a round already."""
        return number < self.closed.get(task, 0)

    def close(self, task: int, number: int) -> None:
        """A quorum does a task of a round: who comes later is dropped."""
        self.closed[task] = number + 1

    def drop(self, task: int, number: int) -> int:
        """Count a rank that came after its round was closed; the last round that is."""
        last = self.closed[task] - 1
        self.dropped += 1
        self.skipped += last - number
        return last


@dataclass(slots=True)
class Behind:
    """How many of the ranks of a gate have finished each round, and when the last of them did."""

    ranks: frozenset[int]
    passed: list[int]
    latest: list[float]

    @classmethod
    def of(cls, task: Task, rounds: int) -> Behind:
        """Nobody has finished a round yet."""
        return cls(ranks=frozenset(task.ranks), passed=[0] * rounds, latest=[0.0] * rounds)

    def note(self, number: int, end: float) -> bool:
        """A rank has finished a round; whether it is the last one."""
        self.passed[number] += 1
        self.latest[number] = max(self.latest[number], end)
        return self.passed[number] == len(self.ranks)


def gates(program: StepProgram) -> Iterator[tuple[int, Task]]:
    """The tasks behind gates that all their ranks must have left behind."""
    for number, task in enumerate(program.tasks):
        if task.gate is not None and not task.gate.of:
            yield number, task
