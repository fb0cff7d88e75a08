"""When each task of a step program ends: one walk along all but the pipeline's actions (tier B).

    ready = what the task waits for on its own ranks, and tasks of other rows
    start = the latest ready of those that meet in it
    end   = start + price

Times are arrays (ranks, ...): whatever follows the first axis is walked at once. It is B plans that
have nothing to do with one another, the C classes of replicas of one plan, or replicas x steps of a
Monte Carlo; a `Join` says who of them meets.

A stage's K gradient buckets of c seconds, released while its last backward of L seconds runs to f,
are one task: bucket k is ready at f - L + k L / K, so they end at

    max(max(free, f - L + L / K) + K c, f + c)

Those that pass a queue in one round leave it as `queues` says.

Source: the recurrence of `maxplus`, for tasks that wait for any number of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsim.arrays import Array
from parsim.errors import ScheduleError
from parsim.sim.recurrence.queues import served
from parsim.strategy.program import StepProgram, round_name
from parsim.strategy.task import COMPUTE, Meeting, Task, Waits

Join = Callable[[Meeting, Array], Array]
"""Times (ranks, ...) of those that are ready -> times when all that meet are ready."""


class PipelineEnds(NamedTuple):
    """Times of the pipeline phase, seconds.

    `clock` (p, ...) is the end of each rank's last action, `released` (S, ...) when a stage's
    gradients are complete, `length` (S, ...) that of the backward that completed them.
    """

    clock: Array
    released: Array
    length: Array


class TaskTimes(NamedTuple):
    """When each rank was ready for a task, and when it was done, seconds, (ranks, ...) each."""

    ready: Array
    start: Array
    end: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """Times of all tasks by name (`round_name`), and of the step, seconds.

    `updated` is the end of the last task on any rank, `step_time` that with what the program says
    it grows by, for one of the steps that the program spans.
    """

    times: Mapping[str, TaskTimes]
    updated: Array
    step_time: Array


def apart(meeting: Meeting, ready: Array) -> Array:
    """Join of columns that have nothing to do with one another, such as plans of a search."""
    return ready


def by_class(sharers: NDArray[np.bool_]) -> Callable[[Meeting, Array], Array]:
    """Join of classes of replicas, the last axis; `sharers` (C, C) says which share parameters."""

    def join(meeting: Meeting, ready: Array) -> Array:
        if meeting in (Meeting.REPLICAS, Meeting.WORLD):
            latest = ready.max(axis=-1, keepdims=True)
            return np.broadcast_to(latest, ready.shape)
        if meeting is Meeting.SHARERS:
            return np.asarray(np.where(sharers, ready[..., None, :], -np.inf).max(axis=-1))
        return ready

    return join


def walk(
    program: StepProgram,
    prices: Mapping[str, Array],
    actions: PipelineEnds,
    join: Join = apart,
    slow: Array | None = None,
) -> StepEnd:
    """Find the times of all tasks of a program.

    Args:
        program: what every rank does.
        prices: seconds (and numbers of pieces) by name; rows are ranks or stages.
        actions: when the pipeline's actions end; of a program without a pipeline, zeros.
        join: who of those behind the first axis meets.
        slow: how many times as long kernels take in each round on each rank, (rounds, ranks).

    Raises:
        ScheduleError: times depend on who comes first, which events tell.
    """
    if program.depends_on_arrival:
        raise ScheduleError(
            f"step program: task {program.depends_on_arrival!r} depends on who comes first; run "
            f"the program as events"
        )
    streams = _Streams(program, actions.clock)
    times: dict[str, TaskTimes] = {}
    finished: list[Array] = []
    for number in range(program.rounds):
        for task in program.tasks:
            if number not in task.when:
                continue
            ready = _passed(task, number, finished, streams.ready(task, times, number))
            price = _price(task, prices, None if slow is None else slow[number])
            after = _run(task, price, prices, actions, join, ready)
            times[round_name(task.name, number)] = after
            streams.occupy(task, after.end)
        finished.append(streams.last())
    updated = join(Meeting.WORLD, streams.last().max(axis=0, keepdims=True))[0]
    grown = updated if not program.grows else updated * (1.0 + prices[program.grows])
    return StepEnd(times=times, updated=updated, step_time=grown / program.steps)


def _passed(task: Task, number: int, finished: Sequence[Array], ready: Array) -> Array:
    """When ranks may pass the gate of a task."""
    if task.gate is None or number <= task.gate.lag:
        return ready
    others = finished[number - 1 - task.gate.lag]
    if not task.gate.of:
        latest = others[list(task.ranks)].max(axis=0, keepdims=True)
    else:
        latest = np.stack([others[list(ranks)].max(axis=0) for ranks in task.gate.of])
    return np.asarray(np.maximum(ready, latest))


def _price(task: Task, prices: Mapping[str, Array], slow: Array | None) -> Array:
    """Seconds of a task on its ranks in a round."""
    seconds = task.rows(prices[task.price]) if task.price else np.zeros(1)
    if slow is None or not task.on_device:
        return seconds
    return np.asarray(seconds * slow[list(task.ranks), None])


def _run(
    task: Task,
    seconds: Array,
    prices: Mapping[str, Array],
    actions: PipelineEnds,
    join: Join,
    ready: Array,
) -> TaskTimes:
    """Start a task when all that meet in it are ready."""
    if task.released:
        return _in_pieces(task, seconds, task.rows(prices[task.pieces]), actions, join, ready)
    if task.pieces:
        seconds = task.rows(prices[task.pieces]) * seconds
    together = ready
    if task.meets in (Meeting.STAGES, Meeting.WORLD):
        together = ready.max(axis=0, keepdims=True)
    start = join(task.meets, together)
    end = start + seconds
    for queue in task.queues:
        end = np.maximum(end, served(task, queue, prices[queue.price], ready))
    return TaskTimes(ready, start, end)


def _in_pieces(
    task: Task, each: Array, count: Array, actions: PipelineEnds, join: Join, free: Array
) -> TaskTimes:
    """A task whose pieces are released while the last backward of its stage runs."""
    stages = list(task.stages)
    done, length = actions.released[stages], actions.length[stages]
    first = join(task.meets, done - length + length / count)
    start = np.maximum(free, first)
    end = np.maximum(start + count * each, join(task.meets, done) + each)
    return TaskTimes(free, start, end)


class _Streams:
    """When each stream of each rank is free, (ranks, ...)."""

    def __init__(self, program: StepProgram, clock: Array) -> None:
        self.program, self.ranks = program, program.ranks
        names = dict.fromkeys((COMPUTE, *(task.stream for task in program.tasks)))
        self.free = {name: clock if name == COMPUTE else np.zeros_like(clock) for name in names}
        self.written: set[str] = set()

    def ready(self, task: Task, times: Mapping[str, TaskTimes], number: int) -> Array:
        """When the task's ranks are ready for it in a round."""
        rows = self._rows(task)
        ready = np.array(self.free[task.stream][rows])
        if task.waits is Waits.RANK:
            for free in self.free.values():
                ready = np.maximum(ready, free[rows])
        for name in task.after:
            if number in self.program.task(name).when:
                end = times[round_name(name, number)].end
                ready = np.maximum(ready, end.max(axis=0, keepdims=True))
        return ready

    def occupy(self, task: Task, end: Array) -> None:
        """Let the task's stream be busy until its end; behind a barrier, every stream."""
        if task.meets is Meeting.WORLD:
            whole = np.broadcast_to(end, (self.ranks, *end.shape[1:]))
            self.free = dict.fromkeys(self.free, whole)
            self.written.clear()
            return
        if len(task.ranks) == self.ranks:
            self.free[task.stream] = np.broadcast_to(end, (self.ranks, *end.shape[1:]))
            self.written.discard(task.stream)
            return
        columns = np.broadcast_shapes(self.free[task.stream].shape[1:], end.shape[1:])
        if task.stream not in self.written or columns != self.free[task.stream].shape[1:]:
            wide = np.broadcast_to(self.free[task.stream], (self.ranks, *columns))
            self.free[task.stream] = np.array(wide)
            self.written.add(task.stream)
        self.free[task.stream][self._rows(task)] = end

    def last(self) -> Array:
        """When each rank has done everything."""
        latest, *others = self.free.values()
        for free in others:
            latest = np.maximum(latest, free)
        return latest

    def _rows(self, task: Task) -> slice | list[int]:
        """The task's rows, without a copy where they lie together."""
        first, last = task.ranks[0], task.ranks[-1]
        if last - first + 1 == len(task.ranks):
            return slice(first, last + 1)
        return list(task.ranks)
