"""The tasks of a program as each rank runs them: numbers instead of names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array
from parsim.sim.rounds.passages import Passages, Passed, Span
from parsim.strategy.program import StepProgram
from parsim.strategy.task import ALWAYS, Meeting, Queue, Task, Waits


class Turn(NamedTuple):
    """A task on one rank, seconds.

    `always` says that every round has it, `meets` that ranks do it together, `queued` that it
    passes queues, `awaited` by how many ranks it must be done before others go on (0: nobody
    waits). `after` are tasks of other rows that it waits for. `queues` are pairs of a queue's
    number and the seconds that it serves, `spans` the numbers of spans of queues that serve alike;
    with `peers`, the queue of one of these, drawn, is passed too, in as many seconds as the first.
    `behind` are the ranks of its gate; empty: all of the task. `chain` are the seconds of it and of
    those straight behind it that wait for nothing else and for which nobody waits.
    """

    task: int
    seconds: float
    stream: int
    waits_for_rank: bool
    on_device: bool
    always: bool
    meets: bool
    gated: bool
    queued: bool
    uses_weights: bool
    awaited: int
    after: tuple[int, ...]
    queues: Passed
    peers: tuple[int, ...]
    behind: tuple[int, ...]
    spans: tuple[int, ...] = ()
    chain: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledRows:
    """The turns of each rank in issue order, the streams of each rank, queues by name.

    `queues` has the number of the queue that stands for each name, `spans` those of all turns.
    """

    turns: tuple[tuple[Turn, ...], ...]
    queues: Mapping[str, int]
    streams: tuple[int, ...]
    spans: tuple[Span, ...] = ()


def compile_rows(
    program: StepProgram, prices: Mapping[str, Array], *, linked: bool = False
) -> CompiledRows:
    """Compile a program without pipelines; `prices` are (rows, 1) by name.

    Queues that are links are left out where what travels is `linked` to links that all share.
    """
    awaited = _awaited(program)
    queues: dict[str, int] = {}
    streams: list[dict[str, int]] = [{} for _ in range(program.ranks)]
    rows: list[list[Turn]] = [[] for _ in range(program.ranks)]
    for number, task in enumerate(program.tasks):
        alike = _turn_of(program, number, task.name in awaited)
        seconds = _by_rank(task, prices[task.price]) if task.price else [0.0] * len(task.ranks)
        passed = [queue for queue in task.queues if not (linked and queue.link)]
        ways = _passed(task, passed, prices, queues)
        for position, rank in enumerate(task.ranks):
            turn = alike._replace(
                seconds=seconds[position],
                stream=streams[rank].setdefault(task.stream, len(streams[rank])),
                queued=bool(ways[position]),
                queues=ways[position],
                peers=_peers(task, position, queues),
                behind=task.gate.of[position] if task.gate and task.gate.of else (),
            )
            rows[rank].append(turn)
    plain = _plain_tasks(program)
    chained = tuple(tuple(_chained(row, plain))[::-1] for row in rows)
    return _told_once(CompiledRows(turns=chained, queues=queues, streams=tuple(map(len, streams))))


def _turn_of(program: StepProgram, number: int, awaited: bool) -> Turn:
    """What a task's turns have in common."""
    task = program.tasks[number]
    return Turn(
        task=number,
        seconds=0.0,
        stream=0,
        waits_for_rank=task.waits is Waits.RANK,
        on_device=task.on_device,
        always=task.when == ALWAYS,
        meets=task.meets is not Meeting.NOBODY,
        gated=task.gate is not None,
        queued=False,
        uses_weights=task.reads or task.writes,
        awaited=awaited * (task.quorum or len(task.ranks)),
        after=tuple(program.order[name] for name in task.after),
        queues=(),
        peers=(),
        behind=(),
    )


def _awaited(program: StepProgram) -> set[str]:
    """Tasks for which other rows wait."""
    return {name for task in program.tasks for name in task.after}


def _plain_tasks(program: StepProgram) -> frozenset[int]:
    """Tasks of every round that are nothing but seconds, and that no other row waits for."""
    awaited = _awaited(program)
    return frozenset(
        number
        for number, task in enumerate(program.tasks)
        if not (task.queues or task.routes or task.reads or task.writes or task.name in awaited)
        and task.meets is Meeting.NOBODY
        and task.when == ALWAYS
    )


def _chained(row: Sequence[Turn], plain: frozenset[int]) -> Iterator[Turn]:
    """The turns of a rank, from its last to its first, with the chains that begin at them."""
    chain: tuple[float, ...] = ()
    behind: Turn | None = None
    for turn in reversed(row):
        chain = (turn.seconds, *(chain if behind and _goes_on(turn, behind) else ()))
        chain = chain if turn.task in plain else ()
        behind = turn._replace(chain=chain)
        yield behind


def _goes_on(turn: Turn, behind: Turn) -> bool:
    """Whether the turn behind begins when a turn ends, and takes longer on the same devices."""
    follows = not (behind.waits_for_rank or behind.after or behind.gated)
    return follows and (behind.stream, behind.on_device) == (turn.stream, turn.on_device)


def _told_once(rows: CompiledRows) -> CompiledRows:
    """Queues that are alike told once, unless one of several is drawn."""
    turns = [turn for row in rows.turns for turn in row]
    if any(turn.peers for turn in turns):
        return rows
    passages = Passages(turn.queues for turn in turns)

    def divided(turn: Turn) -> Turn:
        queues, spans = passages.of(turn.queues)
        return turn._replace(queues=queues, spans=spans)

    return replace(
        rows,
        turns=tuple(tuple(map(divided, row)) for row in rows.turns),
        queues={name: passages.stand_in[number] for name, number in rows.queues.items()},
        spans=tuple(passages.spans),
    )


def _by_rank(task: Task, price: Array) -> list[float]:
    """Seconds of a task on each of its ranks."""
    wide = np.broadcast_to(np.atleast_2d(task.rows(price)), (len(task.ranks), 1))
    seconds: list[float] = wide[:, 0].astype(np.float64).tolist()
    return seconds


def _passed(
    task: Task, passed: Sequence[Queue], prices: Mapping[str, Array], queues: dict[str, int]
) -> list[Passed]:
    """Queues that each of a task's ranks passes, with how long each serves it."""
    count = len(task.ranks)
    ways: list[list[tuple[int, float]]] = [[] for _ in range(count)]
    for queue in passed:
        rows = queue.rows if len(queue.rows) > 1 else queue.rows * count
        for way, row, seconds in zip(ways, rows, _by_rank(task, prices[queue.price]), strict=True):
            if row:
                way.append((queues.setdefault(row, len(queues)), seconds))
    return list(map(tuple, ways))


def _peers(task: Task, position: int, queues: dict[str, int]) -> tuple[int, ...]:
    """The queues of which one is drawn: those of the task's other ranks."""
    return tuple(
        queues.setdefault(row, len(queues))
        for queue in task.queues
        if queue.drawn
        for other, row in enumerate(queue.rows)
        if other != position
    )
