"""Tier C with contention where replicas differ: a pipeline for each class, on links that all share.

    class 0    |/// 0F0 ///|  ...  |/// 0B7 ///|    bucket made
    class 1    |////// 0F0 //////|  ...  |////// 0B3 //////|    bucket made
    together                                                |--- reduce ---| norm, update, gather

Each class runs as `contended_step` runs one plan, its traffic that of its own replicas. A bucket is
reduced when the last class has made it; classes that share parameters gather them when the last of
them has updated. With one class the step is that of `contended_step`, to the bit (a test).

Leaves out: as `contended_step`; classes that exchange shards in every pass (`mixed_ready`).
"""

from __future__ import annotations

from collections.abc import Iterable

import simpy

from parsim.sim.contended_step import ContendedStep, reduce_gradients
from parsim.sim.fabric import Fabric, Process
from parsim.sim.mixed_ready import MixedReady
from parsim.sim.ready_step import ReadyStep
from parsim.sim.step_traffic import Role
from parsim.timeline import Span


class _Column(ContendedStep):
    """One class of replicas; its buckets wait for those of all."""

    def __init__(
        self, fabric: Fabric, ready: ReadyStep, number: int, column: int, circle: int
    ) -> None:
        super().__init__(fabric, ready, number)
        self.column, self.circle, self.first_lane = column, circle, column * ready.schedule.pp
        self.closed = [self.env.event() for _ in self.schedule.ranks]

    def begin_pipeline(self) -> None:
        """Begin the pipeline phase now."""
        for rank in range(self.schedule.pp):
            self.env.process(self._compute(rank))

    def note(
        self, rank: int, stream: str, kind: str, begin: float, stage: int = -1, mb: int = -1
    ) -> None:
        """As of one plan, on the class's own lanes."""
        super().note(self.first_lane + rank, stream, kind, begin, stage, mb)

    def _send(self, role: Role, seconds: float) -> Process:
        column = self.circle if role.name == "shard" else self.column
        return super()._send(role._replace(column=column), seconds)

    def _close(self, rank: int) -> None:
        super()._close(rank)
        self.closed[rank].succeed()


class MixedStep:
    """One step of a job on a fabric, from now on; as `ContendedStep`."""

    def __init__(self, fabric: Fabric, ready: MixedReady, number: int = 0) -> None:
        """A step of the fabric's job of that number."""
        self.env, self.begin = fabric.env, fabric.env.now
        self.columns = [
            _Column(fabric, one, number, column, circle)
            for column, (one, circle) in enumerate(zip(ready.columns, ready.circles, strict=True))
        ]
        self.circles, self.pp = ready.circles, ready.plan.pp
        self.step_time = 0.0

    @property
    def spans(self) -> list[Span]:
        """What each rank of each class did when."""
        return [span for one in self.columns for span in one.spans]

    def start(self) -> simpy.Process:
        """Begin the step now; the process ends with it."""
        env = self.env
        reduced = [env.process(reduce_gradients(self.columns, rank)) for rank in range(self.pp)]
        for one in self.columns:
            one.begin_pipeline()
        return env.process(self._finish(reduced))

    def _done(
        self, one: _Column, ranks: Iterable[int], reduced: list[simpy.Process]
    ) -> simpy.Event:
        """Pipeline ranks of a class are through, and their gradients are reduced."""
        return self.env.all_of(
            [event for rank in ranks for event in (one.closed[rank], reduced[rank])]
        )

    def _tied(self, one: _Column, reduced: list[simpy.Process]) -> Process:
        """A class's ranks are done; those with the tied table then reduce it."""
        tied = float(one.costs.tied[0])
        first, last = one.schedule.stage_rank[0], one.schedule.stage_rank[-1]
        if tied and first != last:
            yield self._done(one, (first, last), reduced)
            yield self.env.timeout(tied)
        yield self._done(one, range(self.pp), reduced)

    def _finish(self, reduced: list[simpy.Process]) -> Process:
        env, costs = self.env, self.columns[0].costs
        yield env.all_of([env.process(self._tied(one, reduced)) for one in self.columns])
        yield env.timeout(float(costs.late[0]))
        yield env.timeout(float(costs.norm[0]))
        ends = [
            env.process(self._update(circle, rank))
            for circle in sorted(set(self.circles))
            for rank in range(self.pp)
        ]
        yield env.all_of(ends)
        self.step_time = (env.now - self.begin) * (1.0 + float(costs.straggler[0]))

    def _update(self, circle: int, rank: int) -> Process:
        """Those that share a rank's parameters update them, then gather them together."""
        env = self.env
        meeting = [one for one in self.columns if one.circle == circle]
        yield env.all_of([env.process(self._optimize(one, rank)) for one in meeting])
        begin, gather = env.now, max(float(one.costs.gather[rank, 0]) for one in meeting)
        stage = meeting[0].schedule.stages_on(rank)[0]
        yield from meeting[0]._send(Role("shard", stage), gather)
        for one in meeting if gather > 0.0 else ():
            one.note(rank, "dp", "GATHER_PARAM", begin)

    def _optimize(self, one: _Column, rank: int) -> Process:
        begin = self.env.now
        yield self.env.timeout(one.slow[rank] * float(one.costs.optimizer[rank, 0]))
        one.note(rank, "compute", "OPTIMIZER", begin)
