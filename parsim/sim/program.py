"""Simulate any step program: its times by recurrence or by events, its bytes, its timeline.

This is how a strategy is tried: one function writes the program, and everything else follows from
it. A plan's step, whose pipelines have a schedule and prices of their own, goes through `simulate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from parsim.arrays import Array
from parsim.errors import ScheduleError
from parsim.sim.drawing.task_spans import task_spans
from parsim.sim.events.class_run import RunnableStep
from parsim.sim.events.step_run import StepRun, run_quietly
from parsim.sim.recurrence.walk import PipelineEnds, StepEnd, walk
from parsim.strategy import StepProgram
from parsim.strategy.weight_versions import GRADIENTS, WEIGHTS
from parsim.timelines.timeline import MemoryCurve, Timeline, ordered

Change = tuple[float, float, str]
"""When a rank keeps (or frees, below 0) how many bytes of what name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedProgram:
    """A program without pipelines, with seconds and bytes of everything that it names.

    `seconds` are by the names of prices, `sizes` by those of what tasks keep and of what ranks hold
    all the time; one number each, or one a rank.
    """

    program: StepProgram
    seconds: Mapping[str, Array]
    sizes: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a program that has pipelines, or names what has no price.

        Raises:
            ScheduleError: as said.
        """
        if self.program.pipelines:
            raise ScheduleError("step program: pipelines have a plan's prices; simulate the plan")
        for task in self.program.tasks:
            if task.price and task.price not in self.seconds:
                raise ScheduleError(
                    f"step program: task {task.name!r} has the price {task.price!r}, but seconds "
                    f"are given for: {', '.join(sorted(self.seconds))}"
                )

    @property
    def prices(self) -> Mapping[str, Array]:
        """Seconds by name as columns of one class: (rows, 1); (1,) what the step grows by."""
        columns = {name: np.atleast_1d(value) for name, value in self.seconds.items()}
        grows = self.program.grows
        return {name: value if name == grows else value[:, None] for name, value in columns.items()}


def by_recurrence(priced: PricedProgram, slow: Array | None = None) -> StepEnd:
    """Times of a program by one walk along its tasks (tier B); `slow` as in `walk`."""
    nothing = np.zeros((priced.program.ranks, 1))
    ends = PipelineEnds(nothing, nothing, nothing)
    return walk(priced.program, priced.prices, ends, slow=slow)


def by_events(priced: PricedProgram) -> StepRun:
    """Times of a program of one round in simpy (tier C)."""
    alone = np.ones((1, 1), dtype=bool)
    return run_quietly(RunnableStep(program=priced.program, prices=priced.prices, sharers=alone))


def peak_bytes(priced: PricedProgram) -> Array:
    """The most bytes that each rank holds at once, (ranks,)."""
    return np.array([max(curve.bytes) for curve in memory_curves(priced, by_recurrence(priced))])


def program_timeline(priced: PricedProgram) -> Timeline:
    """Draw a program: what each rank does when, and what it holds."""
    program, end = priced.program, by_recurrence(priced)
    clock = np.zeros((program.ranks, 1))
    names = program.roles or tuple(f"rank {rank}" for rank in range(program.ranks))
    return Timeline(
        spans=ordered(task_spans(program, priced.prices, end, clock)),
        memory=tuple(memory_curves(priced, end)),
        meta={
            "source": "predicted",
            "step_time_s": float(end.step_time[0]),
            "steps": program.steps,
            "rank_labels": {str(rank): name for rank, name in enumerate(names)},
        },
    )


def memory_curves(priced: PricedProgram, end: StepEnd) -> Iterator[MemoryCurve]:
    """What each rank holds over time: its static bytes, and what tasks keep until it is freed.

    What ends at a moment is freed before what starts then.
    """
    for rank in range(priced.program.ranks):
        static = _size(priced, priced.program.static, rank)
        changes = sorted(_changes(priced, end, rank))
        old = _kept_of(changes, lambda name: name == WEIGHTS)
        kept = _kept_of(changes, lambda name: name not in (WEIGHTS, GRADIENTS))
        yield MemoryCurve(
            rank=rank,
            times=(0.0, *(time for time, _, _ in changes)),
            bytes=tuple((static + _kept_of(changes, lambda name: True)).tolist()),
            static=static,
            activations=tuple(kept.tolist()),
            old_weights=tuple(old.tolist()) if old.any() else (),
        )


def _kept_of(changes: Sequence[Change], counts: Callable[[str], bool]) -> Array:
    """Bytes at the start and after each change, of the names that count."""
    sizes = [size if counts(name) else 0.0 for _, size, name in changes]
    return np.cumsum([0.0, *sizes])


def _changes(priced: PricedProgram, end: StepEnd, rank: int) -> Iterator[Change]:
    """When a rank keeps or frees how many bytes, and of what."""
    for task in priced.program.tasks:
        if rank not in task.ranks:
            continue
        row = min(task.ranks.index(rank), len(end.times[task.name].start) - 1)
        if task.keeps:
            yield (
                float(end.times[task.name].start[row, 0]),
                _size(priced, task.keeps, rank),
                task.keeps,
            )
        for name in task.frees:
            kept = priced.program.task(name).keeps
            yield float(end.times[task.name].end[row, 0]), -_size(priced, kept, rank), kept


def _size(priced: PricedProgram, name: str, rank: int) -> float:
    """Bytes of a name on a rank; nothing where it has no name."""
    if not name:
        return 0.0
    sizes = np.atleast_1d(priced.sizes[name])
    return float(sizes[rank if len(sizes) > 1 else 0])
