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

from parsim.errors import ScheduleError
from parsim.schedule import Schedule
from parsim.strategy.task import ALWAYS, SEND, Meeting, Task


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
