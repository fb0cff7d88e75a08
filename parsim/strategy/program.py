"""A step as data: tasks in issue order, what they wait for, who meets in them, names of prices.

    rank 0  compute   | F B F B ...            | UPDATE |          pipeline's actions, then tasks
            dp                   | REDUCE_GRAD |        | GATHER |
    rank 1  compute     | F B F B ...          | UPDATE |
            dp                     | REDUCE_GRAD |      | GATHER |

The pipeline's actions are tasks too; there are so many that they stay in their `Schedule`, one for
each class of replicas. Every other thing that a step does is a `Task`. A program knows no seconds
and no bytes: prices have names, and whoever prices the program gives an array for each.

Tasks stand in an order in which each waits for earlier ones only, so that one walk along them
finds all times. Its ranks may play other roles than a stage's (a server). A program may span
several steps: then its tasks are those of one round, which every rank repeats at its own pace, and
what it waits for of others is in the tasks: a meeting, a `Gate`, a `Queue`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from parsim.arrays import Array
from parsim.errors import ScheduleError
from parsim.schedule import Schedule
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
    routes run over links that all share.
    """

    rows: tuple[str, ...]
    price: str
    drawn: bool = False
    link: bool = False

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgram:
    """What every rank does in a step, or in `steps` of them.

    `pipelines` are the actions of the stages, one schedule for each class of replicas (none: the
    tasks are all there is). `sends` is the stream that carries their messages: on the compute
    stream a sender waits for its message. `roles` name the ranks. `grows` names the share by which
    the whole step is longer, `static` the bytes that a rank holds all the time. Every rank does its
    tasks `rounds` times, one round after another, and no faster than its tasks let it.
    """

    tasks: tuple[Task, ...]
    ranks: int
    pipelines: tuple[Schedule, ...] = ()
    sends: str = SEND
    roles: tuple[str, ...] = ()
    grows: str = ""
    static: str = ""
    steps: int = 1
    rounds: int = 1
    rows: dict[tuple[int, str], tuple[Task, ...]] = field(init=False, repr=False, compare=False)
    order: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the order of the tasks, and sort them into rows."""
        check_program(self.tasks, self.ranks)
        rows: dict[tuple[int, str], list[Task]] = {}
        for task in self.tasks:
            for rank in task.ranks:
                rows.setdefault((rank, task.stream), []).append(task)
        object.__setattr__(self, "rows", {row: tuple(tasks) for row, tasks in rows.items()})
        order = {task.name: number for number, task in enumerate(self.tasks)}
        object.__setattr__(self, "order", order)

    def task(self, name: str) -> Task:
        """The task of a name."""
        return self.tasks[self.order[name]]

    @property
    def depends_on_arrival(self) -> str:
        """The first task whose time depends on who comes first, which only events tell; or "".

        Queues serve in order of arrival. Where all that pass them meet in every round, the last one
        is done at the same time whoever comes first.
        """
        barriers = {
            frozenset(task.ranks)
            for task in self.tasks
            if task.meets is not Meeting.NOBODY and not task.quorum and task.when == ALWAYS
        }
        for task in self.tasks:
            drawn = any(queue.drawn for queue in task.queues)
            queued = bool(task.queues) and self.rounds > 1
            loose = queued and not any(barrier.issuperset(task.ranks) for barrier in barriers)
            if task.quorum or drawn or loose:
                return task.name
        return ""


def round_name(task: str, number: int) -> str:
    """What a task is called in a round: by its name in the first one."""
    return f"{task} @{number}" if number else task


def check_program(tasks: Sequence[Task], ranks: int) -> None:
    """Refuse a program that cannot be walked from its first task to its last.

    Raises:
        ScheduleError: two tasks of one name, a rank that is none, or a task that waits for a later
            one.
    """
    known: set[str] = set()
    for task in tasks:
        if task.name in known:
            raise ScheduleError(f"step program: two tasks are called {task.name!r}")
        outside = [rank for rank in task.ranks if not 0 <= rank < ranks]
        if outside or not task.ranks:
            raise ScheduleError(
                f"step program: task {task.name!r} is on ranks {list(task.ranks)}; allowed: "
                f"0 to {ranks - 1}, at least one"
            )
        missing = [name for name in (*task.after, *task.frees) if name not in known]
        if missing:
            raise ScheduleError(
                f"step program: task {task.name!r} waits for {missing[0]!r}, which does not stand "
                f"before it; write tasks in an order in which each waits for earlier ones"
            )
        known.add(task.name)
