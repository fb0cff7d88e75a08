"""The tasks of a program as each rank runs them: numbers instead of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.strategy.program import Queue, StepProgram, Task, Waits


class Turn(NamedTuple):
    """A task on one rank, seconds.

    `after` are tasks of other rows that it waits for. `queues` are pairs of a queue's number and
    the seconds that it serves; with `peers`, the queue of one of these, drawn, is passed too, in
    as many seconds as the first. `behind` are the ranks of its gate; empty: all of the task.
    """

    task: int
    seconds: float
    stream: int
    waits_for_rank: bool
    after: tuple[int, ...]
    queues: tuple[tuple[int, float], ...]
    peers: tuple[int, ...]
    behind: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRows:
    """The turns of each rank in issue order, the names of queues, the streams of each rank."""

    turns: tuple[tuple[Turn, ...], ...]
    queues: tuple[str, ...]
    streams: tuple[int, ...]


def compile_rows(
    program: StepProgram, prices: Mapping[str, Array], *, linked: bool = False
) -> CompiledRows:
    """Compile a program without pipelines; `prices` are (rows, 1) by name.

    Queues that are links are left out where what travels is `linked` to links that all share.
    """
    queues: dict[str, int] = {}
    streams: list[dict[str, int]] = [{} for _ in range(program.ranks)]
    rows: list[list[Turn]] = [[] for _ in range(program.ranks)]
    for number, task in enumerate(program.tasks):
        seconds = _by_rank(task, prices[task.price]) if task.price else [0.0] * len(task.ranks)
        passed = [queue for queue in task.queues if not (linked and queue.link)]
        service = [_by_rank(task, prices[queue.price]) for queue in passed]
        for position, rank in enumerate(task.ranks):
            turn = Turn(
                task=number,
                seconds=seconds[position],
                stream=streams[rank].setdefault(task.stream, len(streams[rank])),
                waits_for_rank=task.waits is Waits.RANK,
                after=tuple(program.order[name] for name in task.after),
                queues=_passed(passed, position, service, queues),
                peers=_peers(task, position, queues),
                behind=task.gate.of[position] if task.gate and task.gate.of else (),
            )
            rows[rank].append(turn)
    return CompiledRows(
        turns=tuple(map(tuple, rows)),
        queues=tuple(queues),
        streams=tuple(map(len, streams)),
    )


def _by_rank(task: Task, price: Array) -> list[float]:
    """Seconds of a task on each of its ranks."""
    wide = np.broadcast_to(np.atleast_2d(task.rows(price)), (len(task.ranks), 1))
    return [float(seconds) for seconds in wide[:, 0]]


def _passed(
    passed: Sequence[Queue],
    position: int,
    service: Sequence[Sequence[float]],
    queues: dict[str, int],
) -> tuple[tuple[int, float], ...]:
    """Queues that a rank passes, with how long each serves it."""
    return tuple(
        (queues.setdefault(queue.row(position), len(queues)), seconds[position])
        for queue, seconds in zip(passed, service, strict=True)
        if queue.row(position)
    )


def _peers(task: Task, position: int, queues: dict[str, int]) -> tuple[int, ...]:
    """The queues of which one is drawn: those of the task's other ranks."""
    return tuple(
        queues.setdefault(row, len(queues))
        for queue in task.queues
        if queue.drawn
        for other, row in enumerate(queue.rows)
        if other != position
    )
