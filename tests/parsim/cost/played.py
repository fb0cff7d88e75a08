"""A plain simulation of one stream program, event by event: the reference for `streams.run`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import simpy

from parsim.cost.streams import COMPUTE, StreamTask

Process = Generator[simpy.Event, object, None]


@dataclass(slots=True)
class Device:
    """How many collectives run now, and an event that happens when this changes."""

    env: simpy.Environment
    speed: float
    running: int = 0
    changed: simpy.Event = field(init=False)

    def __post_init__(self) -> None:
        self.changed = self.env.event()

    def count(self, by: int) -> None:
        self.running += by
        self.changed, before = self.env.event(), self.changed
        before.succeed()


def played(
    program: Sequence[StreamTask], speed: float, column: int = 0
) -> tuple[list[float], list[float]]:
    """Start and end of each task of one plan."""
    env = simpy.Environment()
    device = Device(env, speed)
    done = [env.event() for _ in program]
    start, end = ([0.0] * len(program) for _ in range(2))

    def kernel(left: float) -> Process:
        while left > 0.0:
            rate = device.speed if device.running else 1.0
            began = env.now
            finished = env.timeout(left / rate) if rate else env.event()
            yield finished | device.changed
            left = 0.0 if finished.processed else left - (env.now - began) * rate
        return

    def stream(numbers: list[int]) -> Process:
        for number in numbers:
            task = program[number]
            for awaited in task.after:
                if not done[awaited].processed:
                    yield done[awaited]
            seconds = float(task.seconds[column])
            start[number] = env.now
            if task.stream == COMPUTE:
                yield from kernel(seconds)
            elif seconds > 0.0:
                device.count(1)
                yield env.timeout(seconds)
                device.count(-1)
            end[number] = env.now
            done[number].succeed()

    for name in dict.fromkeys(task.stream for task in program):
        env.process(stream([i for i, task in enumerate(program) if task.stream == name]))
    env.run()
    return start, end
