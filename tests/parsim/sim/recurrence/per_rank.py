"""A plain simulation of every rank by itself, layer by layer: the reference for folding and planes.

Each rank is a simpy process. It knows its own speed, its peers, and nothing of the others; a
tensor-parallel group meets after every layer, replicas meet after the last action.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import simpy

from parsim.schedule import Kind, Schedule
from parsim.sim.step.folding import Folding

Process = Generator[simpy.Event, Any, None]


class Rank(NamedTuple):
    """One process: its pipeline rank, its speed, and the numbers of those it deals with."""

    row: int
    slowdown: float
    tensor: frozenset[int]
    data: frozenset[int]
    before: int
    after: int


class Times(NamedTuple):
    """Seconds of one layer's forward (backward: twice), one collective, a message, a reduction."""

    layer: float
    collective: float
    hop: float
    reduction: float


def mesh_ranks(slowdown: Sequence[Sequence[Sequence[float]]]) -> list[Rank]:
    """All ranks of a pp x dp x tp mesh."""
    dp, tp = len(slowdown[0]), len(slowdown[0][0])

    def number(row: int, d: int, t: int) -> int:
        return (row * dp + d) * tp + t

    return [
        Rank(
            row=row,
            slowdown=slowdown[row][d][t],
            tensor=frozenset(number(row, d, other) for other in range(tp)),
            data=frozenset(number(row, other, t) for other in range(dp)),
            before=number(row - 1, d, t),
            after=number(row + 1, d, t),
        )
        for row in range(len(slowdown))
        for d in range(dp)
        for t in range(tp)
    ]


def folded_ranks(ranks: Sequence[Rank], folding: Folding) -> list[Rank]:
    """One process per class, whose peers are the classes of its representative's peers."""

    def of(peer: int) -> int:
        return int(folding.class_of[peer]) if 0 <= peer < len(ranks) else -1

    chosen = [ranks[r] for r in folding.representative.tolist()]
    return [
        rank._replace(
            tensor=frozenset(of(peer) for peer in rank.tensor),
            data=frozenset(of(peer) for peer in rank.data),
            before=of(rank.before),
            after=of(rank.after),
        )
        for rank in chosen
    ]


@dataclass
class Meeting:
    """A collective: the last to come lets all go on."""

    event: simpy.Event
    absent: int


class Mesh:
    """All processes of a step; `finish[i]` is the end of process i's gradient reduction."""

    def __init__(
        self, schedule: Schedule, layers: Sequence[int], ranks: Sequence[Rank], times: Times
    ) -> None:
        self.env = simpy.Environment()
        self.schedule, self.layers, self.ranks, self.times = schedule, layers, ranks, times
        self.messages: dict[tuple[int, int, int, int], simpy.Event] = {}
        self.meetings: dict[tuple[str, frozenset[int], int], Meeting] = {}
        self.met = [0] * len(ranks)
        self.clock = [0.0] * len(ranks)
        self.finish = [0.0] * len(ranks)
        for number in range(len(ranks)):
            self.env.process(self.work(number))
        self.env.run()

    def work(self, number: int) -> Process:
        rank, last = self.ranks[number], self.schedule.num_stages - 1
        for stage, kind, microbatch in self.schedule.ranks[rank.row]:
            forward = kind == Kind.F
            if stage != (0 if forward else last):
                peer = rank.before if forward else rank.after
                yield self.message(peer, stage + (-1 if forward else 1), kind, microbatch)
            for _ in range(self.layers[stage]):
                yield self.env.timeout(self.times.layer * (1 if forward else 2) * rank.slowdown)
                yield from self.meet("tensor", rank.tensor, number)
                yield self.env.timeout(self.times.collective)
            self.env.process(self.send(number, stage, kind, microbatch))
        self.clock[number] = self.env.now
        yield from self.meet("data", rank.data, number)
        yield self.env.timeout(self.times.reduction)
        self.finish[number] = self.env.now

    def message(self, *key: int) -> simpy.Event:
        sender, stage, kind, microbatch = key
        return self.messages.setdefault((sender, stage, int(kind), microbatch), self.env.event())

    def send(self, number: int, stage: int, kind: Kind, microbatch: int) -> Process:
        yield self.env.timeout(self.times.hop)
        self.message(number, stage, kind, microbatch).succeed()

    def meet(self, what: str, group: frozenset[int], number: int) -> Process:
        self.met[number] += 1
        key = (what, group, self.met[number])
        meeting = self.meetings.setdefault(key, Meeting(self.env.event(), len(group)))
        meeting.absent -= 1
        if meeting.absent == 0:
            meeting.event.succeed()
        yield meeting.event
