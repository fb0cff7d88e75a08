"""A step as data: tasks in issue order, what they wait for, who meets in them, names of prices.

    rank 0  compute   | F B F B ...            | UPDATE |          pipeline's actions, then tasks
            dp                   | REDUCE_GRAD |        | GATHER |
    rank 1  compute     | F B F B ...          | UPDATE |
            dp                     | REDUCE_GRAD |      | GATHER |

The pipeline's actions are tasks too; there are so many that they stay in their `Schedule`, one for
each class of replicas. Every other thing that a step does is a `Task`. A program knows no seconds
and no bytes: prices have names, and whoever prices the program gives an array for each.

Tasks stand in an order in which each waits for earlier ones only, so that one walk along them
finds all times. A program may span several steps (an all-reduce every second one), and its ranks
may play other roles than a stage's (a server).
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
class Task:
    """One thing that ranks do after or beside the pipeline's actions.

    `name` is unique in its program, `kind` what is drawn. Each of `ranks` does it by itself, except
    those that meet. `price` names an array of seconds, of which `at` picks a row for each rank
    (empty: a row for each rank in order, or one for all). `after` are tasks of other rows that must
    have ended. `stages` say for each rank which stage it is about, where it is about one.

    With `pieces`, the price is that of one of so many pieces (also the name of an array), done one
    after another. Where they are `released` by the last backward of the stage, they become ready at
    an even pace while it runs; otherwise all at once.

    `routes` name what travels over links, one behind the other. `on_device` are kernels, which take
    longer on a slow device.
    `keeps` names the bytes that live from the task's start until the end of the task that `frees`
    it.
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
    on_device: bool = False
    keeps: str = ""
    frees: tuple[str, ...] = ()
    stages: tuple[int, ...] = ()
    microbatch: int = -1

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
    the whole step is longer, `static` the bytes that a rank holds all the time.
    """

    tasks: tuple[Task, ...]
    ranks: int
    pipelines: tuple[Schedule, ...] = ()
    sends: str = SEND
    roles: tuple[str, ...] = ()
    grows: str = ""
    static: str = ""
    steps: int = 1
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
