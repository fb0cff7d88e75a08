"""Where ranks wait for one another in a run of rounds: queues, tasks, meetings, and gates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from parsim.strategy.program import StepProgram, Task


@dataclass(slots=True)
class Queues:
    """When each queue is free again, and for how many seconds it has served."""

    free_at: list[float]
    busy: list[float]

    @classmethod
    def of(cls, count: int) -> Queues:
        """All are free, and have served nobody."""
        return cls(free_at=[0.0] * count, busy=[0.0] * count)

    def serve(
        self, asked: Iterable[tuple[int, float]], ready: float, end: float
    ) -> tuple[float, float]:
        """Pass queues; when the last of them began, and when all have served or `end`, if later."""
        start = ready
        for queue, seconds in asked:
            begin = max(ready, self.free_at[queue])
            self.free_at[queue] = begin + seconds
            self.busy[queue] += seconds
            start, end = max(start, begin), max(end, begin + seconds)
        return start, end


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
