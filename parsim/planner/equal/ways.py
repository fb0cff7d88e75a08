"""The longest ways through a schedule: a bound of its end for all plans that have it.

    rank 0 | F F . . . B . B        way  F F     of 4 forwards, 3 backwards and 2 messages: no plan
    rank 1 | . F F B . B .                 F B B  with this schedule ends before all of them
                                                B

A way goes from action to action that waits for it, on one rank or by a message. Which way is the
longest depends on how long a backward, its halves and a message are beside a forward, so that there
is one for each of some ratios. Every way is one of any plan with the schedule: whatever the ratios,
none ends earlier.

Leaves out: stages that take longer than their share of layers, and messages that take longer than
the shortest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags, Index, sorted_values
from parsim.plan.names import SPLIT
from parsim.schedule import Kind
from parsim.sim.recurrence.maxplus import ClassTimes, run
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule

HALVES = ((0.5, 0.5), (1.0, 1.0), (1.5, 1.0), (2.0, 1.0), (3.0, 1.0))
"""I and W over forward: short, as usual, with some and with all layers recomputed, and more."""

MESSAGES = (0.0, 0.05)
"""A message over a layer's forward: of no account, and of some."""

PARTS = {Kind.F: (1, 0, 0), Kind.B: (0, 1, 1), Kind.I: (0, 1, 0), Kind.W: (0, 0, 1)}
"""How many F, I and W an action of a kind is."""


def longest_ways(
    compiled: CompiledSchedule, layers: tuple[int, ...], *, blocking: bool = False
) -> Array:
    """(F, I, W, heads, messages) along the longest way of each ratio, (T, 5).

    F, I and W are those of a layer, heads how often the last stage has F and backward on the way.
    `layers` are those of each stage of one copy of the model; `blocking` says that a rank computes
    nothing while it sends. A schedule of the user's with backwards in two has no ways: what its
    parts take is not bounded.
    """
    kinds = compiled.duration_class % KINDS
    whole = bool(np.isin(kinds, (Kind.F, Kind.B)).all())
    if compiled.repeats > 1 or not (whole or compiled.schedule.name in SPLIT):
        return np.zeros((0, 5))
    stages = compiled.schedule.in_copies(np.array(layers, dtype=np.float64)[:, None])
    times = _times(compiled, stages)
    graph = _Graph.of(compiled, times, blocking)
    times = times.blocking() if blocking else times
    finish = run(compiled, times, keep=True).finish
    if finish is None:
        raise RuntimeError("the recurrence kept no finish times")
    each = np.array([PARTS[Kind(kind)] for kind in range(KINDS)], dtype=np.float64)[kinds]
    stage = compiled.duration_class // KINDS
    last = (stage % len(layers) == len(layers) - 1)[:, None] * each
    each = np.concatenate([each * stages[stage], last], axis=1)
    ways = graph.ways(finish, times.hop)
    return sorted_values([_counted(each[way].sum(axis=0), sent) for way, sent in ways], axis=0)


def _counted(parts: Array, messages: int) -> list[float]:
    """F, I and W of layers, then how many times all three of the last stage, then messages."""
    forward, inner, weight, *of_last = parts.tolist()
    return [forward, inner, weight, min(of_last), messages]


def _times(compiled: CompiledSchedule, stages: Array) -> ClassTimes:
    """Lengths of actions and messages for each ratio, with `stages` (S, 1) layers."""
    ratios = np.array([(*halves, message) for halves, message in product(HALVES, MESSAGES)])
    inner, weight, message = ratios.T
    lengths = {Kind.F: 1.0 + 0.0 * inner, Kind.B: inner + weight, Kind.I: inner, Kind.W: weight}
    seconds = {kind: stages * length for kind, length in lengths.items()}
    return ClassTimes.on(compiled.schedule, seconds, message + np.zeros((len(stages) - 1, 1)))


class _Graph(NamedTuple):
    """What an action waits for: 1 + a position, or 0; and which actions send a message."""

    before: Index
    source: Index
    classes: Index
    sends: Flags
    blocking: bool

    @classmethod
    def of(cls, compiled: CompiledSchedule, times: ClassTimes, blocking: bool) -> _Graph:
        """The graph of a schedule's actions; those send whose messages take time."""
        classes = compiled.duration_class
        sends = (times.hop[:, -1] > 0.0)[classes]
        return cls(compiled.before, compiled.source, classes, sends, blocking)

    def ways(self, finish: Array, hop: Array) -> Iterator[tuple[Index, int]]:
        """Positions of the actions of a longest way, the last one first, and its messages.

        One for each of T columns: `finish` (A, T) are the ends of all actions, `hop` (C, T) the
        messages behind those of a class.
        """
        start = np.full((1, finish.shape[1]), -1.0)
        arrivals = np.concatenate([start, finish + hop[self.classes]])[self.source]
        by_message = arrivals > np.concatenate([start, finish])[self.before]
        waits_for = np.where(by_message, self.source[:, None], self.before[:, None]) - 1
        last = np.argmax(finish, axis=0).tolist()
        for column, position in enumerate(last):
            way = _back(waits_for[:, column].tolist(), position)
            received = self.source[way[by_message[way, column]]] - 1
            yield way, int(self.sends[way[1:] if self.blocking else received].sum())


def _back(waits_for: Sequence[int], position: int) -> Index:
    """A position, what it waits for, and so on back to what waits for nothing."""
    way = list[int]()
    while position >= 0:
        way.append(position)
        position = waits_for[position]
    return np.array(way)
