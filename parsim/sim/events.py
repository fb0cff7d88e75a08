"""Tier C: the same step as simpy processes on streams, the reference for tier B.

Each pipeline rank has a compute process that walks its actions and a data-parallel process that
reduces gradient buckets in the order they become ready. Messages are events. Nothing here knows
the recurrence of tier B; that both give the same times is a test, not a construction.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import simpy

from parsim.cost.step import StepCosts
from parsim.schedule import Action, Kind, Schedule

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


class EventSimulation:
    """One plan's step in simpy; `costs` has one plan (B = 1)."""

    def __init__(self, schedule: Schedule, costs: StepCosts) -> None:
        self.env = simpy.Environment()
        self.schedule = schedule
        self.costs = costs
        self.last_stage = schedule.num_stages - 1
        self.forward = costs.forward[:, 0].tolist()
        self.backward = costs.backward[:, 0].tolist()
        self.hop = costs.hop[:, 0].tolist()
        self.counts = [int(k) for k in costs.buckets[:, 0]]
        self.bucket_time = costs.bucket_time[:, 0].tolist()
        self.arrived: dict[tuple[int, int, int], float] = {}
        self.waiting: dict[tuple[int, int, int], simpy.Event] = {}
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

    def _final_backwards(self) -> set[tuple[int, int, int]]:
        last: dict[int, Action] = {}
        for row in self.schedule.ranks:
            for action in row:
                if action.kind in (Kind.B, Kind.W):
                    last[action.stage] = action
        return {tuple(action) for action in last.values()}  # type: ignore[misc]

    def _compute(self, rank: int) -> Process:
        """Walk the rank's actions: wait for the input, work, send."""
        env, record, final = self.env, self.record.actions, self.final
        for action in self.schedule.ranks[rank]:
            needed = self._input(action)
            if needed is not None:
                if needed not in self.arrived:
                    self.waiting[needed] = env.event()
                    yield self.waiting[needed]
                if self.arrived[needed] > env.now:
                    yield env.timeout(self.arrived[needed] - env.now)
            start = env.now
            if action in final:
                yield from self._last_backward(rank, action)
            else:
                yield env.timeout(self._duration(action))
            record.append((action, rank, start, env.now))
            yield from self._send(rank, action)
        self.record.clock[rank] = env.now
        if not self.costs.overlap_reduce:
            for stage in self._stages_by_completion(rank):
                self.bucket_queue[rank].put((stage, self.counts[stage]))
        self.bucket_queue[rank].put(None)

    def _duration(self, action: Action) -> float:
        times: list[float] = self.forward if action.kind == Kind.F else self.backward
        return times[action.stage]

    def _last_backward(self, rank: int, action: Action) -> Process:
        """A stage's last backward releases its gradient buckets one after another."""
        count, length = self.counts[action.stage], self._duration(action)
        begin = self.env.now
        for bucket in range(1, count + 1):
            until = begin + length if bucket == count else begin + length * bucket / count
            yield self.env.timeout(until - self.env.now)
            if self.costs.overlap_reduce:
                self.bucket_queue[rank].put((action.stage, 1))

    def _input(self, action: Action) -> tuple[int, int, int] | None:
        stage, kind, microbatch = action
        if kind == Kind.F:
            return (stage - 1, Kind.F, microbatch) if stage else None
        if stage == self.last_stage:
            return (stage, Kind.F, microbatch)
        return (stage + 1, Kind.B, microbatch)

    def _send(self, rank: int, action: Action) -> Process:
        """Hand the result on: at once on the same rank, after the hop to another one."""
        stage, kind, microbatch = action
        target = stage + 1 if kind == Kind.F else stage - 1
        key = (stage, int(kind), microbatch)
        if not 0 <= target <= self.last_stage or self.schedule.stage_rank[target] == rank:
            self._arrive(key, self.env.now)
            return
        start, hop = self.env.now, self.hop[min(stage, target)]
        if self.costs.blocking_p2p:
            yield self.env.timeout(hop)
            self._arrive(key, self.env.now)
        else:
            self._arrive(key, self.env.now + hop)
        self.record.sends.append((action, rank, start, start + hop))

    def _arrive(self, key: tuple[int, int, int], when: float) -> None:
        self.arrived[key] = when
        waiter = self.waiting.pop(key, None)
        if waiter is not None:
            waiter.succeed()

    def _stages_by_completion(self, rank: int) -> Iterator[int]:
        for action in self.schedule.ranks[rank]:
            if tuple(action) in self.final:
                yield action.stage

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
        if tied and len(done) > 1:
            yield self.env.all_of([done[0], done[-1]])
            yield self.env.timeout(tied)
            self.record.reduced[0] = self.record.reduced[-1] = self.env.now
        yield self.env.all_of(done)
        yield self.env.timeout(float(self.costs.norm[0]))
        update = self.costs.optimizer[:, 0] + self.costs.gather[:, 0]
        yield self.env.timeout(float(update.max()))
        self.record.updated = self.env.now
        self.record.step_time = self.env.now * (1.0 + float(self.costs.straggler[0]))


def simulate_events(schedule: Schedule, costs: StepCosts) -> Recorded:
    """Run one plan's step in tier C."""
    return EventSimulation(schedule, costs).run()
