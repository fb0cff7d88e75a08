"""The timeline of a strategy: its first rounds, worker by worker, and what servers do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from parsim.arrays import Array
from parsim.cost.jitter import Jitter
from parsim.sim.data_parallel.pace import rounds_of
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.drawing.timeline import predicted_hardware
from parsim.sim.rounds.linked_run import Carrier
from parsim.sim.rounds.rounds_end import RoundsEnd
from parsim.strategy import StepProgram
from parsim.strategy.task import COMPUTE, WAIT
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span, Timeline, ordered

MOST_ROUNDS = 8
"""Rounds that are drawn, where an average every so-many-th does not ask for more."""
MOST_SPANS = 20_000
"""Boxes of a picture: later rounds are left out."""

_OTHER_SIDE: Final = {SpanKind.PUSH: Stream.RECV, SpanKind.PULL: Stream.SEND}
"""Where a server's row has what workers send to it and fetch from it."""

ROUNDING = 1e-9
"""Share of a message's length below which what is left of it is rounding."""


def strategy_timeline(
    strategy: PricedStrategy, jitter: Jitter | None, carrier: Carrier | None = None
) -> Timeline:
    """Run the first rounds as events, on a carrier's links if any, and draw every task.

    Without a carrier the picture ends when the predicted rounds do, stragglers among them.
    """
    workers, program = strategy.workers, _first_rounds(strategy.priced.program)
    spreads = jitter or Jitter()
    if carrier is None and not program.depends_on_arrival:  # as the recurrence has it
        spreads = replace(spreads, slow_ranks=())
    first = replace(strategy, priced=replace(strategy.priced, program=program))
    end = rounds_of(first, spreads, carrier=carrier, keep=True)
    names = _row_names(program)
    drawn = list(_with_exposed([*_spans(program, end), *_served(program, end, names)]))
    if carrier is None:
        drawn += _growth(drawn, end.end, strategy.growth)
    return Timeline(
        spans=ordered(drawn),
        memory=(),
        meta={
            "source": "predicted",
            "model": workers.job.model.name,
            **predicted_hardware(workers.job),
            "plan": workers.plan.label(),
            "step_time_s": end.end / program.rounds,
            "steps": program.rounds,
            "rank_labels": {str(rank): name for rank, name in enumerate(names)},
        },
    )


def _row_names(program: StepProgram) -> tuple[str, ...]:
    """Names of all rows: ranks, and behind them queues that are shown and are no rank."""
    ranks = program.roles or tuple(f"rank {rank}" for rank in range(program.ranks))
    shown = (queue.shown for task in program.tasks for queue in task.queues if queue.shown)
    return tuple(dict.fromkeys((*ranks, *shown)))


def _first_rounds(program: StepProgram) -> StepProgram:
    """So many rounds as can be drawn: at least one average, if they are rare."""
    longest = max(task.when.since + task.when.every for task in program.tasks)
    boxes = sum(len(task.ranks) for task in program.tasks)
    most = max(MOST_SPANS // boxes, 1)
    rounds = min(program.rounds, max(longest, MOST_ROUNDS), most)
    return replace(program, rounds=rounds, steps=rounds)


def _growth(drawn: Iterable[Span], end: float, growth: float) -> Iterator[Span]:
    """What stragglers add to all rounds, behind them, on every worker."""
    for rank in {span.rank for span in drawn if span.kind == SpanKind.F} if growth > 1.0 else ():
        yield Span(rank, Stream.COMPUTE, SpanKind.STRAGGLER, end, end * growth)


def _spans(program: StepProgram, end: RoundsEnd) -> list[Span]:
    """A box for each task with a length on each rank and in each round."""
    return [
        Span(
            rank=rank,
            stream=program.tasks[number].stream,
            kind=program.tasks[number].kind,
            start=start,
            end=stop,
            microbatch=program.tasks[number].microbatch,
        )
        for (number, rank, _), (start, stop) in end.times.items()
        if program.tasks[number].kind != WAIT and stop > start
    ]


def _with_exposed(drawn: Sequence[Span]) -> Iterator[Span]:
    """All boxes, with what compute does not hide of those of communication."""
    beside = _compute_until(drawn)
    for span in drawn:
        yield span if span.stream == COMPUTE else span._replace(exposed=_exposed(span, beside))


def _served(program: StepProgram, end: RoundsEnd, names: tuple[str, ...]) -> Iterator[Span]:
    """What queues that are shown serve, each in its row: the other side of the task's stream."""
    rows = {
        (number, name): names.index(queue.shown)
        for number, task in enumerate(program.tasks)
        for queue in task.queues
        if queue.shown
        for name in queue.rows
    }
    for name, number, _, start, stop in end.services:
        if (number, name) in rows and stop > start:
            task = program.tasks[number]
            other = _OTHER_SIDE.get(task.kind, COMPUTE)
            yield Span(rows[number, name], other, task.kind, start, stop)


def _compute_until(drawn: Iterable[Span]) -> dict[int, tuple[Array, Array]]:
    """By rank, moments at which its compute stream begins or stops, and its seconds until then."""
    by_rank: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for span in drawn:
        if span.stream == COMPUTE:
            by_rank[span.rank].append((span.start, span.end))
    until = {}
    for rank, busy in by_rank.items():
        moments = np.array(sorted(busy))
        seconds = np.cumsum(moments[:, 1] - moments[:, 0])
        until[rank] = (moments.ravel(), np.repeat([0.0, *seconds], 2)[1:-1])
    return until


def _exposed(span: Span, beside: dict[int, tuple[Array, Array]]) -> float:
    """Seconds of a span of communication in which its rank computes nothing."""
    if span.rank not in beside:
        return span.duration
    moments, seconds = beside[span.rank]
    begin, end = np.interp([span.start, span.end], moments, seconds)
    exposed = span.duration - float(end - begin)
    return exposed if exposed > ROUNDING * span.duration else 0.0
