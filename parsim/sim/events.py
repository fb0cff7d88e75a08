"""Tier C: the same step as simpy processes on streams, the reference for tier B.

Each pipeline rank has a compute process that walks its actions and a data-parallel process that
reduces gradient buckets in the order they become ready. Messages are events. Nothing here knows
the recurrence of tier B; that both give the same times is a test, not a construction.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import simpy

from parsim.cost.step import StepCosts
from parsim.schedule import Action, Kind, Schedule
from parsim.sim.own_costs import weight_times

Process = Generator[simpy.Event, Any, None]


@dataclass(slots=True, kw_only=True)
class Recorded:
    """What happened: (action, rank, start, end) of every action and the ends of later phases."""

    actions: list[tuple[Action, int, float, float]] = field(default_factory=list)
    sends: list[tuple[Action, int, float, float]] = field(default_factory=list)
    buckets: list[tuple[int, int, float, float]] = field(default_factory=list)
    clock: list[float] = field(default_factory=list)
    reduced: list[float] = field(default_factory=list)
    updated: float = 0.0
    step_time: float = 0.0


class _Step(NamedTuple):
    """One action ready to run.

    `needed` and `made` number the results it consumes and makes (-1: none); `seconds` is its
    length, `hop` that of its message (-1: the result stays on the rank).
    """

    action: Action
    needed: int
    made: int
    seconds: float
    hop: float


class EventSimulation:
    """One plan's step in simpy; `costs` has one plan (B = 1)."""

    def __init__(
        self, schedule: Schedule, costs: StepCosts, env: simpy.Environment | None = None
    ) -> None:
        self.env = env or simpy.Environment()
        self.schedule = schedule
        self.costs = costs
        self.last_stage = schedule.num_stages - 1
        self.forward = costs.forward[:, 0].tolist()
        self.backward = costs.backward[:, 0].tolist()
        self.weight = weight_times(costs)[:, 0].tolist()
        self.hop = costs.hop[:, 0].tolist()
        self.counts = [int(k) for k in costs.buckets[:, 0]]
        self.bucket_time = costs.bucket_time[:, 0].tolist()
        self.arrived = [-1.0] * (2 * schedule.num_stages * schedule.num_microbatches)
        self.waiting: dict[int, simpy.Event] = {}
        self.bucket_queue = [simpy.Store(self.env) for _ in schedule.ranks]
        self.final = self._final_backwards()
        self.record = Recorded(clock=[0.0] * schedule.pp, reduced=[0.0] * schedule.pp)

    def run(self) -> Recorded:
        """Run to the end of the step."""
        done = [self.env.process(self._reduce(rank)) for rank in range(self.schedule.pp)]
        for rank in range(self.schedule.pp):
            self.env.process(self._compute(rank))
        self.env.process(self._finish(done))
        self.env.run()
        return self.record

    def _final_backwards(self) -> set[Action]:
        """The action that completes each stage's gradients."""
        last: dict[int, Action] = {}
        for row in self.schedule.ranks:
            for action in row:
                if action.kind == Kind.B or action.kind == Kind.W:
                    last[action.stage] = action
        return set(last.values())

    def _steps(self, rank: int) -> Iterator[_Step]:
        """What each action of a rank needs, makes, lasts and sends."""
        stage_rank, last = self.schedule.stage_rank, self.last_stage
        for action in self.schedule.ranks[rank]:
            stage, kind, microbatch = action
            if kind == Kind.W:  # its I came before on this rank; nothing waits for a W
                yield _Step(action, -1, -1, self.weight[stage], -1.0)
                continue
            ahead = kind == Kind.F
            target = stage + 1 if ahead else stage - 1
            leaves = 0 <= target <= last and stage_rank[target] != rank
            if ahead:
                needed = self._key(stage - 1, True, microbatch) if stage else -1
            else:
                needed = self._key(min(stage + 1, last), stage == last, microbatch)
            yield _Step(
                action,
                needed,
                self._key(stage, ahead, microbatch),
                self._seconds(stage, kind),
                self.hop[min(stage, target)] if leaves else -1.0,
            )

    def _seconds(self, stage: int, kind: Kind) -> float:
        if kind == Kind.F:
            return float(self.forward[stage])
        whole = float(self.backward[stage])
        return whole - float(self.weight[stage]) if kind == Kind.I else whole

    def _key(self, stage: int, ahead: bool, microbatch: int) -> int:
        """Number of a forward's or backward's result."""
        return (2 * stage + (not ahead)) * self.schedule.num_microbatches + microbatch

    def _compute(self, rank: int) -> Process:
        """Walk the rank's actions: wait for the input, work, send."""
        env, arrived, waiting = self.env, self.arrived, self.waiting
        done, final = self.record.actions, self.final
        for action, needed, made, seconds, hop in list(self._steps(rank)):
            if needed >= 0:
                if arrived[needed] < 0.0:
                    waiting[needed] = env.event()
                    yield waiting[needed]
                if arrived[needed] > env.now:
                    yield env.timeout(arrived[needed] - env.now)
            start = env.now
            if action in final:
                yield from self._last_backward(rank, action.stage, seconds)
            else:
                yield env.timeout(seconds)
            end = env.now
            done.append((action, rank, start, end))
            if hop >= 0.0:
                self.record.sends.append((action, rank, end, end + hop))
                if self.costs.blocking_p2p:
                    yield env.timeout(hop)
                    end, hop = env.now, 0.0
            if made < 0:
                continue
            arrived[made] = end + max(hop, 0.0)
            if made in waiting:
                waiting.pop(made).succeed()
        self._close(rank)

    def _close(self, rank: int) -> None:
        """The rank's last action is done: without overlap its reduction starts now."""
        self.record.clock[rank] = self.env.now
        queue = self.bucket_queue[rank]
        if not self.costs.overlap_reduce:
            for action in self.schedule.ranks[rank]:
                if action in self.final:
                    queue.put((action.stage, self.counts[action.stage]))
        queue.put(None)

    def _last_backward(self, rank: int, stage: int, length: float) -> Process:
        """A stage's last backward releases its gradient buckets one after another."""
        count, begin = self.counts[stage], self.env.now
        for bucket in range(1, count + 1):
            until = begin + length if bucket == count else begin + length * bucket / count
            yield self.env.timeout(until - self.env.now)
            if self.costs.overlap_reduce:
                self.bucket_queue[rank].put((stage, 1))

    def _reduce(self, rank: int) -> Process:
        """Data-parallel stream of a rank: one bucket at a time."""
        while True:
            item = yield self.bucket_queue[rank].get()
            if item is None:
                break
            stage, count = item
            for _ in range(count):
                start = self.env.now
                yield self.env.timeout(self.bucket_time[stage])
                self.record.buckets.append((rank, stage, start, self.env.now))
        self.record.reduced[rank] = max(self.env.now, self.record.clock[rank])

    def _finish(self, done: list[simpy.Process]) -> Process:
        """Tied embedding, gradient norm over all ranks, optimizer and parameter gather."""
        tied = float(self.costs.tied[0])
        first, last = self.schedule.stage_rank[0], self.schedule.stage_rank[-1]
        if tied and first != last:
            yield self.env.all_of([done[first], done[last]])
            yield self.env.timeout(tied)
            self.record.reduced[first] = self.record.reduced[last] = self.env.now
        yield self.env.all_of(done)
        yield self.env.timeout(float(self.costs.late[0]))
        yield self.env.timeout(float(self.costs.norm[0]))
        update = self.costs.optimizer[:, 0] + self.costs.gather[:, 0]
        yield self.env.timeout(float(update.max()))
        self.record.updated = self.env.now
        self.record.step_time = self.env.now * (1.0 + float(self.costs.straggler[0]))


def simulate_events(schedule: Schedule, costs: StepCosts) -> Recorded:
    """Run one plan's step in tier C."""
    return EventSimulation(schedule, costs).run()
