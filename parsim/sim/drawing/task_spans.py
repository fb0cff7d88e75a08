"""Draws the tasks of a step program: what ranks do beside and behind the pipeline's actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from parsim.arrays import Array
from parsim.sim.recurrence.walk import StepEnd
from parsim.strategy.program import StepProgram
from parsim.strategy.task import COMPUTE, WAIT, Task
from parsim.timelines.timeline import Span


def task_spans(
    program: StepProgram, prices: Mapping[str, Array], end: StepEnd, clock: Array
) -> Iterator[Span]:
    """A span for each task with a price on each rank of each class; rank c x ranks + r.

    Args:
        program: what every rank does.
        prices: seconds by name.
        end: when it does it.
        clock: end of each rank's last action, (ranks, C).
    """
    columns = clock.shape[1]
    for task in program.tasks:
        seconds = _spread(task, prices[task.price], columns) if task.price else None
        if task.kind == WAIT or seconds is None:
            continue
        times = end.times[task.name]
        start, ended = (_wide(values, len(task.ranks), columns) for values in times[1:])
        for (row, column), length in np.ndenumerate(seconds):
            if length > 0.0:
                rank = task.ranks[row]
                span = Span(
                    rank=column * program.ranks + rank,
                    stream=task.stream,
                    kind=task.kind,
                    start=float(start[row, column]),
                    end=float(ended[row, column]),
                    stage=task.stage(rank),
                    microbatch=task.microbatch,
                )
                yield _exposed(task, span, float(length), float(clock[rank, column]))


def _exposed(task: Task, span: Span, seconds: float, clock: float) -> Span:
    """How much of a collective the compute stream waits for: what follows its last action."""
    if task.stream == COMPUTE:
        return span
    if not task.pieces:
        return span._replace(exposed=seconds)
    return span._replace(exposed=max(0.0, span.end - max(span.start, clock)))


def _spread(task: Task, price: Array, columns: int) -> Array:
    """The price of a task on each of its ranks, (ranks, C)."""
    return _wide(np.atleast_1d(task.rows(price)), len(task.ranks), columns)


def _wide(values: Array, rows: int, columns: int) -> Array:
    return np.broadcast_to(values, (rows, columns))
