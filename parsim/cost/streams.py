"""A stream program: kernels on the compute stream, collectives on communication streams.

    compute      |  c0  |w|  c1   |w| ...     a kernel waits for the collectives it needs (w) ...
    collectives  | g0 |  g1   |  g2   | ...   ... and runs at `speed` while any of them runs

A stream runs its tasks in issue order, one at a time; a task also waits for the earlier tasks that
it names. Collectives keep their own speed. Every number is a column over plans, so one walk over
the tasks evaluates all plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array

COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTask:
    """A kernel or a collective: its stream, its seconds alone, the earlier tasks that it awaits."""

    stream: str
    seconds: Array
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimes:
    """What a program took.

    `duration` is the end of the last task, `compute` the kernels' own seconds, `late` what they
    lost beside collectives; `exposed` by stream is what the kernels, or the end, waited for it.
    duration = compute + late + sum of exposed. `start` and `end` are those of each task.
    """

    duration: Array
    compute: Array
    late: Array
    exposed: Mapping[str, Array]
    start: tuple[Array, ...]
    end: tuple[Array, ...]


def run(program: Sequence[StreamTask], speed: Array) -> StreamTimes:
    """Run a program on idle streams.

    While a collective runs, a kernel makes `speed` seconds of progress in a second. What can run
    beside a kernel is known when its turn comes: every collective that does not wait for it or for
    a later one. A collective that an earlier kernel has waited for is over.

    Source: processor sharing with fixed rates; tests run the same programs event by event.
    Leaves out: that collectives slow one another and are slowed by kernels.
    """
    walk = _Walk(program, speed)
    for number in _turns(program):
        walk.step(number)
    return walk.finish()


def _turns(program: Sequence[StreamTask]) -> list[int]:
    """Tasks in an order in which each kernel follows all that may run beside it.

    A collective follows the kernels that it waits for, itself or by its stream; so every one goes
    right behind the last of them, and the issue order decides among those of one place.
    """
    turns: list[int] = []
    last: dict[str, int] = {}
    kernels = 0
    for task in program:
        needed = [turns[i] for i in task.after]
        if task.stream == COMPUTE:
            kernels += 1
            turns.append(2 * kernels)
        else:
            # right behind kernel k is 2 k + 1, and before the first one 1
            needed.append(last.get(task.stream, 1))
            turns.append(max(turn | 1 for turn in needed))
            last[task.stream] = turns[-1]
    return sorted(range(len(program)), key=lambda i: turns[i])


class _Walk:
    """Times of the tasks taken so far; `beside` are collectives that may still run."""

    def __init__(self, program: Sequence[StreamTask], speed: Array) -> None:
        self.program = program
        self.speed = speed
        self.zero: Array = np.zeros(np.broadcast_shapes(*(t.seconds.shape for t in program)))
        self.free: dict[str, Array] = {}
        self.start: list[Array] = [self.zero] * len(program)
        self.end: list[Array] = [self.zero] * len(program)
        self.beside: list[int] = []
        self.exposed: dict[str, Array] = {}
        self.late: Array = self.zero

    def step(self, number: int) -> None:
        task = self.program[number]
        begin = self.free.get(task.stream, self.zero)
        if task.stream == COMPUTE:
            begin = self._wait(begin, task.after)
            self.beside = [i for i in self.beside if not self._is_over(i, task.after)]
            end = self._beside(begin, task.seconds)
            self.late = self.late + (end - begin - task.seconds)
        else:
            for awaited in task.after:
                begin = np.maximum(begin, self.end[awaited])
            end = begin + task.seconds
            self.beside.append(number)
        self.start[number], self.end[number], self.free[task.stream] = begin, end, end

    def _wait(self, begin: Array, after: Sequence[int]) -> Array:
        """The kernel's start; each stream is charged with what it adds to the wait."""
        for awaited in after:
            stream = self.program[awaited].stream
            if stream != COMPUTE:
                later = np.maximum(begin, self.end[awaited])
                self.exposed[stream] = self.exposed.get(stream, self.zero) + (later - begin)
                begin = later
        return begin

    def _is_over(self, number: int, awaited: Sequence[int]) -> bool:
        """Whether a collective has ended with one of the awaited: it is before it on its stream."""
        stream = self.program[number].stream
        return any(number <= other and self.program[other].stream == stream for other in awaited)

    def _beside(self, begin: Array, work: Array) -> Array:
        """End of a kernel that begins beside the collectives that may still run."""
        now, left = begin, work
        for start, end in self._busy():
            alone = np.minimum(np.maximum(start - now, 0.0), left)
            now, left = now + alone, left - alone
            needs = left / np.maximum(self.speed, 1e-300)
            spent = np.minimum(np.maximum(end - now, 0.0), needs)
            now, left = now + spent, np.maximum(left - spent * self.speed, 0.0)
        return now + left

    def _busy(self) -> list[tuple[Array, Array]]:
        """Intervals in which a collective runs, by their start; a stream's own are in order."""
        spans = [(self.start[i], self.end[i]) for i in self.beside]
        if len({self.program[i].stream for i in self.beside}) < 2:
            return spans
        starts, ends = (np.stack(np.broadcast_arrays(*side)) for side in zip(*spans, strict=True))
        order = np.argsort(starts, axis=0, kind="stable")
        starts, ends = (np.take_along_axis(side, order, axis=0) for side in (starts, ends))
        return list(zip(starts, ends, strict=True))

    def finish(self) -> StreamTimes:
        """The end waits for every stream, in the order of their first tasks."""
        end = self.free.get(COMPUTE, self.zero)
        kernels = [task.seconds for task in self.program if task.stream == COMPUTE]
        for stream, free in self.free.items():
            later = np.maximum(end, free)
            self.exposed[stream] = self.exposed.get(stream, self.zero) + (later - end)
            end = later
        self.exposed.pop(COMPUTE, None)
        return StreamTimes(
            duration=end,
            compute=np.asarray(sum(kernels, start=self.zero)),
            late=self.late,
            exposed=self.exposed,
            start=tuple(self.start),
            end=tuple(self.end),
        )


def pipelined(compute: Array, wire: Array, pieces: Array, speed: Array | float) -> Array:
    """Duration of K equal kernels with K equal collectives, one ahead or one behind each.

    Either each collective precedes its kernel (gathers, prefetched one ahead) or follows it
    (buckets). C and G together, over K pieces, with speed v beside a collective:

        max(G + C/K, C + G/K + (1 - v) (K - 1)/K G)

    all wire but for one piece of compute, or all compute but for one piece of wire, slowed by the
    K - 1 collectives that it is beside.

    Source: `run` of that program, which tests show to be equal.
    Leaves out: pieces of different sizes.
    """
    piece = 1.0 / np.maximum(pieces, 1.0)
    bound = compute + wire * piece + (1.0 - speed) * (1.0 - piece) * wire
    return np.asarray(np.maximum(wire + compute * piece, bound))
