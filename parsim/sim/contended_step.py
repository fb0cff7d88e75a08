"""Tier C with contention: a step whose collectives and messages share the links of the network.

    compute of rank r   |/// 3F0 ///| tp |          |/// 3B0 ///| tp |
    shard of stage 3    |--- gather ---|            |--- gather, scatter ---|
    messages                           |-- ahead --|                  |-- back --|
    reduction                                               bucket 1 |----|----| bucket 2

Each pipeline rank stands for its replicas, as in `events`; its traffic is that of all of them
(`step_traffic`). An action computes for its time without exposed exchanges; then come those, of
tensor and of context ranks, and with them the messages and gradient buckets, over links that all
share. Without contention every part takes what tier B gives it, so that the step takes what tier B
says: a test, to 1e-9.

A stage's shards go beside its action. The action ends when its own work has, stretched by its
exchanges, and not before the shards and what follows the last of them: a layer's compute, or all
of it where nothing overlaps.

A slow device holds back its whole pipeline rank: all replicas wait for it at their exchanges.

Source: docs of `events` for the order of things; max-min fair sharing in `fair_share`.
Leaves out: where in an action its exchanges are (here behind its compute, as in the drawing);
what contention does to the gradient norm and a tied table; that ranks differ.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import simpy

from parsim.schedule import Action, Kind
from parsim.sim.fabric import Fabric, Process
from parsim.sim.own_costs import weight_times
from parsim.sim.ready_step import ReadyStep
from parsim.sim.step_traffic import Role
from parsim.timeline import Span


class ContendedStep:
    """One step of a job on a fabric, from now on.

    After its end `step_time` is in seconds, and `spans` are what each rank did when.
    """

    def __init__(self, fabric: Fabric, ready: ReadyStep, number: int = 0) -> None:
        """A step of the fabric's job of that number."""
        self.env, self.fabric, self.number = fabric.env, fabric, number
        self.begin = fabric.env.now
        self.schedule, self.costs, self.parts = ready.schedule, ready.costs, ready.parts
        self.slow = ready.slow
        costs = ready.costs
        weight = weight_times(costs)[:, 0]
        forward, backward = costs.forward[:, 0], costs.backward[:, 0]
        length = {Kind.F: forward, Kind.B: backward, Kind.I: backward - weight, Kind.W: weight}
        self.inside = {
            kind: np.minimum(values, length[kind]).tolist() for kind, values in ready.inside.items()
        }
        self.length = {
            kind: [
                whole + (self.slow[rank] - 1.0) * (whole - inside)
                for rank, whole, inside in zip(
                    self.schedule.stage_rank, values.tolist(), self.inside[kind], strict=True
                )
            ]
            for kind, values in length.items()
        }
        self.hop = costs.hop[:, 0].tolist()
        self.counts = [int(k) for k in costs.buckets[:, 0]]
        self.arrived: dict[tuple[int, bool, int], simpy.Event] = {}
        self.buckets = [simpy.Store(self.env) for _ in self.schedule.ranks]
        rows = self.schedule.ranks
        last = {a.stage: a for row in rows for a in row if a.kind in (Kind.B, Kind.W)}
        self.final = set(last.values())
        self.step_time = 0.0
        self.spans: list[Span] = []

    def start(self) -> simpy.Process:
        """Begin the step now; the process ends with it."""
        env, pp = self.env, self.schedule.pp
        done = [env.process(reduce_gradients([self], rank)) for rank in range(pp)]
        for rank in range(pp):
            env.process(self._compute(rank))
        return env.process(self._finish(done))

    def send_together(self, role: Role, seconds: float) -> Process:
        """Traffic of all replicas."""
        return self.fabric.send(self.number, role, seconds)

    def note(
        self, rank: int, stream: str, kind: str, begin: float, stage: int = -1, mb: int = -1
    ) -> None:
        """Something that a pipeline rank began then ends now."""
        self.spans.append(Span(rank, stream, kind, begin, self.env.now, stage, mb))

    def _send(self, role: Role, seconds: float) -> Process:
        """Traffic of these replicas."""
        return self.send_together(role, seconds)

    def _made(self, stage: int, ahead: bool, microbatch: int) -> simpy.Event:
        """The arrival of a forward's or backward's result where it is needed."""
        key = (stage, ahead, microbatch)
        if key not in self.arrived:
            self.arrived[key] = self.env.event()
        return self.arrived[key]

    def _compute(self, rank: int) -> Process:
        """Walk the rank's actions: wait for the input, work, send."""
        env, last = self.env, self.schedule.num_stages - 1
        for action in self.schedule.ranks[rank]:
            stage, kind, microbatch = action
            if kind == Kind.F and stage:
                yield self._made(stage - 1, True, microbatch)
            elif kind in (Kind.B, Kind.I):
                yield self._made(min(stage + 1, last), stage == last, microbatch)
            watched = env.process(self._release(rank, action)) if action in self.final else None
            begin = env.now
            yield from self._act(rank, action)
            self.note(rank, "compute", kind.name, begin, stage, microbatch)
            if watched is not None:
                self._close_buckets(rank, stage)
            if kind != Kind.W:
                yield from self._pass_on(rank, action)
        self._close(rank)

    def _act(self, rank: int, action: Action) -> Process:
        """Compute, exchange, and wait for the shards."""
        stage, kind, _ = action
        whole, inside = self.length[kind][stage], self.inside[kind][stage]
        shard = min(float(self.parts.shard[kind][stage]), whole)
        begin, env = self.env.now, self.env
        shards = env.process(self._shards(rank, stage, shard)) if shard > 0.0 else None
        yield env.timeout(whole - inside)
        context = inside * float(self.parts.context[stage])
        routed = inside * float(self.parts.routed[stage])
        yield from self._send(Role("tp", stage), inside - context - routed)
        yield from self._send(Role("cp", stage), context)
        yield from self._send(Role("ep", stage), routed)
        if shards is None:
            return
        stretched = env.now - begin - whole
        arrived = yield shards
        tail = min(whole - shard, whole * float(self.parts.layer[kind][stage]))
        until = max(begin + whole + max(stretched, 0.0), arrived + tail)
        if until > env.now:
            yield env.timeout(until - env.now)

    def _shards(self, rank: int, stage: int, seconds: float) -> Generator[simpy.Event, Any, float]:
        """Move a stage's shards; the result is when the last one is there."""
        begin = self.env.now
        yield from self._send(Role("shard", stage), seconds)
        self.note(rank, "dp", "SHARD", begin, stage)
        return self.env.now

    def _pass_on(self, rank: int, action: Action) -> Process:
        """Send the result, on the compute stream or beside it."""
        stage, kind, microbatch = action
        ahead = kind == Kind.F
        target = stage + 1 if ahead else stage - 1
        made = self._made(stage, ahead, microbatch)
        leaves = 0 <= target < self.schedule.num_stages
        if not leaves or self.schedule.stage_rank[target] == rank:
            made.succeed()
            return
        message = self._message(rank, action, self.hop[min(stage, target)], made)
        if self.costs.blocking_p2p:
            yield from message
        else:
            self.env.process(message)

    def _message(self, rank: int, action: Action, seconds: float, made: simpy.Event) -> Process:
        stage, kind, microbatch = action
        begin, ahead = self.env.now, kind == Kind.F
        yield from self._send(Role("ahead" if ahead else "back", stage), seconds)
        self.note(rank, "send", "SEND_F" if ahead else "SEND_B", begin, stage, microbatch)
        made.succeed()

    def _release(self, rank: int, action: Action) -> Process:
        """A stage's last backward releases its gradient buckets one after another, but the last."""
        count = self.counts[action.stage]
        if not self.costs.overlap_reduce:
            return
        for _ in range(count - 1):
            yield self.env.timeout(self.length[action.kind][action.stage] / count)
            self.buckets[rank].put((action.stage, 1))

    def _close_buckets(self, rank: int, stage: int) -> None:
        if self.costs.overlap_reduce:
            self.buckets[rank].put((stage, 1))

    def _close(self, rank: int) -> None:
        """The rank's last action is done: without overlap its reduction starts now."""
        queue = self.buckets[rank]
        if not self.costs.overlap_reduce:
            for action in self.schedule.ranks[rank]:
                if action in self.final:
                    queue.put((action.stage, self.counts[action.stage]))
        queue.put(None)

    def _finish(self, done: list[simpy.Process]) -> Process:
        """Tied table, gradient norm over all ranks, optimizer and parameter gather."""
        env, costs = self.env, self.costs
        tied = float(costs.tied[0])
        first, last = self.schedule.stage_rank[0], self.schedule.stage_rank[-1]
        if tied and first != last:
            yield env.all_of([done[first], done[last]])
            yield env.timeout(tied)
        yield env.all_of(done)
        yield env.timeout(float(costs.late[0]))
        yield env.timeout(float(costs.norm[0]))
        yield env.all_of([env.process(self._update(rank)) for rank in range(self.schedule.pp)])
        self.step_time = (env.now - self.begin) * (1.0 + float(costs.straggler[0]))

    def _update(self, rank: int) -> Process:
        begin, gather = self.env.now, float(self.costs.gather[rank, 0])
        yield self.env.timeout(self.slow[rank] * float(self.costs.optimizer[rank, 0]))
        self.note(rank, "compute", "OPTIMIZER", begin)
        begin = self.env.now
        yield from self._send(Role("shard", self.schedule.stages_on(rank)[0]), gather)
        if gather > 0.0:
            self.note(rank, "dp", "GATHER_PARAM", begin)


def reduce_gradients(steps: Sequence[ContendedStep], rank: int) -> Process:
    """Data-parallel stream of a pipeline rank, which all classes of replicas share.

    One bucket at a time, each when the last class has made it: scattered, then reduced.
    """
    first = steps[0]
    while True:
        items = []
        for one in steps:
            items.append((yield one.buckets[rank].get()))
            if items[-1] is None:
                return
        stage, count = items[0]
        seconds = float(first.costs.bucket_time[stage, 0])
        scatter = seconds * float(first.parts.scatter[stage])
        for _ in range(count):
            begin = first.env.now
            yield from first.send_together(Role("scatter", stage), scatter)
            yield from first.send_together(Role("replicate", stage), seconds - scatter)
            for one in steps if seconds > 0.0 else ():
                one.note(rank, "dp", "REDUCE_GRAD", begin, stage)
