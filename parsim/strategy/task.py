"""A task of a step program: who does it, what it waits for, who meets in it, what it passes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from parsim.arrays import Array
from parsim.timelines.kinds import Stream

COMPUTE, DATA, SEND = Stream.COMPUTE, Stream.DP, Stream.SEND
"""Streams: kernels, collectives of replicas, messages between stages."""
WAIT = "WAIT"
"""Kind of a task that is nothing but waiting, and is not drawn."""


class Waits(StrEnum):
    """What a task waits for on its own ranks before it starts."""

    ROW = "row"
    """The task before it on its stream."""
    RANK = "rank"
    """Everything before it on all streams of its ranks, the pipeline's actions among it."""


class Meeting(StrEnum):
    """Who starts a task together, when the last of them is ready."""

    NOBODY = "nobody"
    STAGES = "stages"
    """The task's ranks, each replica by itself."""
    SHARERS = "sharers"
    """On each rank the replicas that share its parameters."""
    REPLICAS = "replicas"
    """On each rank all replicas."""
    WORLD = "world"
    """All the task's ranks of all replicas: a barrier behind which every stream is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Something that serves one at a time, whoever comes first: a server's link, its memory.

    `rows` name it for each of a task's ranks ("" passes it by), or once for all; `price` are the
    seconds that each is served. Where it is `drawn`, a rank is served by its own row together with
    that of another rank, which is drawn anew each time. A `link` is not there where the task's
    routes run over links that all share. What it serves is `shown` in the row of that name.
    """

    rows: tuple[str, ...]
    price: str
    drawn: bool = False
    link: bool = False
    shown: str = ""

    def row(self, position: int) -> str:
        """The queue's name for the task's rank at a position."""
        return self.rows[position if len(self.rows) > 1 else 0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """How far a rank may run ahead: others must have finished the round `lag` + 1 before this one.

    `of` are those others for each of the task's ranks; empty: all ranks of the task.
    """

    lag: int = 0
    of: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """In which rounds a task is done: every so-many-th, counted from `since`, before `until`."""

    every: int = 1
    since: int = 0
    until: int | None = None

    def __contains__(self, number: int) -> bool:
        """Whether a round is one of them; rounds are numbered from 0."""
        begun = number >= self.since and (self.until is None or number < self.until)
        return begun and (number - self.since + 1) % self.every == 0


ALWAYS = Rounds()
"""Every round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing that ranks do after or beside the pipeline's actions.

    `name` is unique in its program, `kind` what is drawn. Each of `ranks` does it by itself, except
    those that meet. `price` names an array of seconds, of which `at` picks a row for each rank
    (empty: a row for each rank in order, or one for all). `after` are tasks of other rows that must
    have ended. `stages` say for each rank which stage it is about, where it is about one.

    With `pieces`, the price is that of one of so many pieces (also the name of an array), done one
    after another. Where they are `released` by the last backward of the stage, they become ready at
    an even pace while it runs; otherwise all at once.

    `routes` name what travels over links, one behind the other: what all who meet send together,
    else each rank its own, and `to` are the ranks that these get it.
    `on_device` are kernels, which take longer on a slow device.
    `keeps` names the bytes that live from the task's start until the end of the task that `frees`
    it.

    In a program of several rounds, `when` says in which of them the task is done. A rank passes all
    its `queues` at once and is done when the last has served it. Behind a `gate` it waits for ranks
    that are slower. With a `quorum`, so many of those that meet are enough: the others go on with
    what they do, and when they come they go on behind the last round that was closed. A task that
    `writes` makes a new version of the shared weights when it ends, one that `reads` copies the
    version of the moment in which it is served.
    """

    name: str
    kind: str
    ranks: tuple[int, ...]
    stream: str = COMPUTE
    price: str = ""
    at: tuple[int, ...] = ()
    after: tuple[str, ...] = ()
    waits: Waits = Waits.ROW
    meets: Meeting = Meeting.NOBODY
    pieces: str = ""
    released: bool = False
    routes: tuple[str, ...] = ()
    to: tuple[int, ...] = ()
    on_device: bool = False
    keeps: str = ""
    frees: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    microbatch: int = -1
    when: Rounds = ALWAYS
    queues: tuple[Queue, ...] = ()
    gate: Gate | None = None
    quorum: int = 0
    reads: bool = False
    writes: bool = False

    def stage(self, rank: int) -> int:
        """The stage that the task is about on a rank; -1 where it is about none."""
        return self.stages[self.ranks.index(rank)] if self.stages else -1

    def rows(self, price: Array) -> Array:
        """What a price is for the task's ranks: a row for each in order, or one for all."""
        return price[list(self.at)] if self.at else price
