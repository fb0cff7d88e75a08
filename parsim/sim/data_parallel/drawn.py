"""The timeline of a strategy: its first rounds, worker by worker, and what servers do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from parsim.cost.jitter import Jitter
from parsim.sim.data_parallel.pace import rounds_of
from parsim.sim.data_parallel.priced_strategy import PricedStrategy
from parsim.sim.drawing.timeline import predicted_hardware
from parsim.sim.rounds.linked_run import Carrier
from parsim.sim.rounds.rounds_end import RoundsEnd
from parsim.strategy import StepProgram
from parsim.strategy.program import COMPUTE, WAIT
from parsim.timelines.kinds import SpanKind, Stream
from parsim.timelines.timeline import Span, Timeline, ordered

MOST_ROUNDS = 8
"""Rounds that are drawn, where an average every so-many-th does not ask for more."""
MOST_SPANS = 20_000
"""Boxes of a picture: later rounds are left out."""


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
    names = program.roles or tuple(f"rank {rank}" for rank in range(program.ranks))
    drawn = list(_spans(program, end))
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


def _spans(program: StepProgram, end: RoundsEnd) -> Iterator[Span]:
    """A box for each task with a length on each rank and in each round."""
    for (number, rank, _), (start, stop) in end.times.items():
        task = program.tasks[number]
        if task.kind == WAIT or stop <= start:
            continue
        span = Span(
            rank=rank,
            stream=task.stream,
            kind=task.kind,
            start=start,
            end=stop,
            microbatch=task.microbatch,
        )
        yield span if task.stream == COMPUTE else span._replace(exposed=stop - start)
