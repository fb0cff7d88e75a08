"""One step as discrete events (tier C): the pipelines, and the tasks of its program, in simpy.

Every task is a process that waits for what stands before it on its ranks, for tasks of other rows
and for all that meet in it; then it travels on the wire. Nothing here knows the recurrence of tier
B: that both give the same step is a test.

Leaves out: what contention does to the gradient norm and a tied table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import simpy

from parsim.errors import InputError
from parsim.sim.events.class_run import RunnableStep, check_shards_apart, runnable
from parsim.sim.events.fabric import Process, QuietWire, Wire
from parsim.sim.events.pipeline_run import PipelineRun
from parsim.sim.step.priced_step import PricedStep
from parsim.sim.traffic.step_traffic import Role
from parsim.strategy.task import COMPUTE, Meeting, Task, Waits
from parsim.timelines.timeline import Span

MOST_PIECES = 50_000
"""Tasks and pieces of tasks of a step: as events, each takes about 0.2 ms."""


class _Turn(NamedTuple):
    """A task as those do it who start together: some ranks of some classes of replicas."""

    task: Task
    ranks: tuple[int, ...]
    columns: tuple[int, ...]


class StepRun:
    """One step on a wire, from now on.

    After its end `step_time` is in seconds, `ends` are those of each task on each rank of each
    class, and `spans` are what each rank did when.
    """

    def __init__(self, wire: Wire, step: RunnableStep) -> None:
        """Prepare a step; `start` begins it."""
        self.wire, self.env, self.step, self.program = wire, wire.env, step, step.program
        self.begin, self.step_time, self.updated = self.env.now, 0.0, 0.0
        circles = step.circles
        self.pipelines = [
            PipelineRun(wire, run, self._pieces(number), number, circles[number])
            for number, run in enumerate(step.classes)
        ]
        self.streams = [[COMPUTE] for _ in range(self.program.ranks)]
        for rank, stream in self.program.rows:
            if stream != COMPUTE:
                self.streams[rank].append(stream)
        self.amounts: dict[tuple[str, str], dict[int, list[float]]] = {}
        self.done: dict[tuple[str, int, int], simpy.Process] = {}
        self.ends: dict[tuple[str, int, int], float] = {}
        self.task_spans: list[Span] = []

    @property
    def spans(self) -> list[Span]:
        """What each rank of each class did when."""
        return [span for run in self.pipelines for span in run.spans] + self.task_spans

    def start(self) -> simpy.Process:
        """Begin the step now; the process ends with it.

        Raises:
            InputError: it has more messages than can be simulated one by one.
        """
        turns = list(self._turns())
        pieces = sum(map(self._count, turns))
        if pieces > MOST_PIECES:
            raise InputError(
                f"the step has {pieces:,} tasks and pieces of tasks, more than the "
                f"{MOST_PIECES:,} that are simulated as events; larger buckets "
                f"(plan.bucket_size) are fewer pieces"
            )
        for turn in turns:
            process = self.env.process(self._take(turn))
            for rank in turn.ranks:
                for column in turn.columns:
                    self.done[turn.task.name, rank, column] = process
        for pipeline in self.pipelines:
            pipeline.start(blocking=self.program.sends == COMPUTE)
        return self.env.process(self._finish())

    def _pieces(self, column: int) -> dict[int, int]:
        """In how many pieces the last backward of each stage releases its gradients."""
        return {
            stage: int(self.step.prices[task.pieces][stage, column])
            for task in self.program.tasks
            if task.released
            for stage in task.stages
        }

    def _count(self, turn: _Turn) -> int:
        """In how many pieces a task is done."""
        return int(max(self._amounts(turn, turn.task.pieces))) if turn.task.pieces else 1

    def _amounts(self, turn: _Turn, price: str) -> list[float]:
        """What a price is for each of the ranks and classes that do a task together."""
        task = turn.task
        if (task.name, price) not in self.amounts:
            rows = task.rows(self.step.prices[price])
            if rows.shape != (wide := (len(task.ranks), len(self.step.sharers))):
                rows = np.broadcast_to(rows, wide)
            self.amounts[task.name, price] = dict(zip(task.ranks, rows.tolist(), strict=True))
        known = self.amounts[task.name, price]
        return [known[rank][column] for rank in turn.ranks for column in turn.columns]

    def _turns(self) -> Iterator[_Turn]:
        """Every task for those who start it together."""
        columns = tuple(range(len(self.step.sharers)))
        circles = self.step.circles
        for task in self.program.tasks:
            if task.meets in (Meeting.REPLICAS, Meeting.WORLD):
                together = [columns]
            elif task.meets is Meeting.SHARERS:
                together = [
                    tuple(c for c in columns if circles[c] == circle)
                    for circle in sorted(set(circles))
                ]
            else:
                together = [(column,) for column in columns]
            whole = task.meets in (Meeting.STAGES, Meeting.WORLD)
            for ranks in [task.ranks] if whole else [(rank,) for rank in task.ranks]:
                for meeting in together:
                    yield _Turn(task, ranks, meeting)

    def _take(self, turn: _Turn) -> Process:
        """Wait for all that must be done before, then do the task."""
        task = turn.task
        before = list(dict.fromkeys(self._before(turn)))
        yield before[0] if len(before) == 1 else self.env.all_of(before)
        seconds = self._seconds(turn)
        for _ in range(self._count(turn)):
            if task.released:
                for column in turn.columns:
                    yield self.pipelines[column].released[task.stage(turn.ranks[0])].get()
            begin = self.env.now
            yield from self._travel(turn, seconds)
            self._note(turn, begin, seconds)
        for rank in turn.ranks:
            for column in turn.columns:
                self.ends[task.name, rank, column] = self.env.now

    def _before(self, turn: _Turn) -> Iterator[simpy.Event]:
        """The ends of what stands before a task on its ranks, and of what it waits for."""
        task = turn.task
        for column in turn.columns:
            for name in task.after:
                for rank in self.program.task(name).ranks:
                    yield self.done[name, rank, column]
            for rank in turn.ranks:
                for stream in self.streams[rank] if task.waits is Waits.RANK else (task.stream,):
                    yield from self._previous(task, rank, stream, column)

    def _previous(self, task: Task, rank: int, stream: str, column: int) -> Iterator[simpy.Event]:
        """The end of the task before this one on a stream, or of the pipeline's actions."""
        order = self.program.order
        earlier = [
            other.name
            for other in self.program.rows.get((rank, stream), ())
            if order[other.name] < order[task.name]
        ]
        if earlier:
            yield self.done[earlier[-1], rank, column]
        elif stream == COMPUTE and self.pipelines:
            yield self.pipelines[column].closed[rank]

    def _seconds(self, turn: _Turn) -> float:
        """The price of a task, or of a piece of it: of those who do it together the highest."""
        task = turn.task
        if not task.price:
            return 0.0
        seconds = max(self._amounts(turn, task.price))
        if task.on_device and self.pipelines:
            seconds = self.pipelines[turn.columns[0]].run.slow[turn.ranks[0]] * seconds
        return seconds

    def _travel(self, turn: _Turn, seconds: float) -> Process:
        """Take the seconds of a task, on links where it is traffic."""
        task = turn.task
        if not task.routes or not self.wire.shared:
            if seconds > 0.0:
                yield self.env.timeout(seconds)
            return
        pipeline = self.pipelines[turn.columns[0]]
        stage = task.stage(turn.ranks[0])
        if stage < 0:
            stage = pipeline.schedule.stages_on(turn.ranks[0])[0]
        if task.meets is Meeting.SHARERS:
            yield from pipeline.send(task.routes[0], stage, seconds)
            return
        first = seconds * float(pipeline.traffic.scatter[stage])
        for name, part in zip(task.routes, (first, seconds - first), strict=True):
            yield from self.wire.send(Role(name, stage), part)

    def _note(self, turn: _Turn, begin: float, seconds: float) -> None:
        """Draw a task that is traffic or kernels on the lanes of those who did it."""
        task = turn.task
        if not task.on_device and not (task.routes and seconds > 0.0):
            return
        for column in turn.columns:
            for rank in turn.ranks:
                lane, stage = column * self.program.ranks + rank, task.stage(rank)
                self.task_spans.append(
                    Span(lane, task.stream, task.kind, begin, self.env.now, stage)
                )

    def _finish(self) -> Process:
        """The step ends with its last task, and grows by what the program says."""
        yield self.env.all_of(list(dict.fromkeys(self.done.values())))
        self.updated = self.env.now - self.begin
        grows = float(self.step.prices[self.program.grows][0]) if self.program.grows else 0.0
        self.step_time = self.updated * (1.0 + grows) / self.program.steps


def run_quietly(step: RunnableStep) -> StepRun:
    """Run a step on a wire that only waits."""
    run = StepRun(QuietWire(), step)
    run.start()
    run.env.run()
    return run


def events_step_time(step: PricedStep) -> float:
    """Seconds of a priced step by discrete events.

    Raises:
        InputError: replicas that differ exchange shards in every pass, which is tier B's alone.
    """
    check_shards_apart(step, "--events", "--events")
    return run_quietly(runnable(step)).step_time
