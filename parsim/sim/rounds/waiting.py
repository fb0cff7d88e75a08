"""Where ranks wait for one another in a run of rounds: meetings, and gates of the slowest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from parsim.strategy.program import StepProgram, Task


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
