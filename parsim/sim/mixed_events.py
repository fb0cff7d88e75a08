"""Tier C for replicas that differ: a simpy pipeline for each, which meet to reduce gradients.

Each class of replicas (or each replica, where none are folded) runs as `events` runs one plan. Its
buckets wait in a queue of its own until all replicas have made theirs. Nothing here knows the
recurrence of tier B; that both give the same step is a test.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import simpy

from parsim.errors import InputError
from parsim.sim.events import EventSimulation, Process
from parsim.sim.mixed import MixedEvaluation


class _Replica(EventSimulation):
    """One pipeline among others; its buckets are fetched by the reduction of all."""

    def start(self) -> None:
        """Begin the pipeline phase."""
        self.closed = [self.env.event() for _ in self.schedule.ranks]
        for rank in range(self.schedule.pp):
            self.env.process(self._compute(rank))

    def _close(self, rank: int) -> None:
        super()._close(rank)
        self.closed[rank].succeed()


class _Replicas:
    """All pipelines of a step, and what they do together."""

    def __init__(self, found: MixedEvaluation) -> None:
        self.env, self.found = simpy.Environment(), found
        self.replicas = [
            _Replica(graph.schedule, found.column(c), self.env)
            for c, graph in enumerate(found.graphs)
        ]
        self.reduced = [self.env.event() for _ in range(found.slots.pp)]
        self.updated: dict[tuple[int, int], simpy.Process] = {}
        self.end = 0.0

    def run(self) -> float:
        """Seconds to the end of the step."""
        for one in self.replicas:
            one.start()
        for rank in range(self.found.slots.pp):
            self.env.process(self._reduce(rank))
        self.env.process(self._finish())
        self.env.run()
        return self.end * (1.0 + float(self.found.costs.straggler[0]))

    def _reduce(self, rank: int) -> Process:
        """Bucket by bucket, each when the last replica has made it."""
        while True:
            items = []
            for one in self.replicas:
                items.append((yield one.bucket_queue[rank].get()))
                if items[-1] is None:
                    break
            if items[-1] is None:
                break
            stage, count = items[0]
            for _ in range(count):
                yield self.env.timeout(self.replicas[0].bucket_time[stage])
        self.reduced[rank].succeed()

    def _tied(self, number: int) -> Process:
        """A replica's ranks are done; those with the tied table then reduce it."""
        one, pp = self.replicas[number], self.found.slots.pp
        first, last = one.schedule.stage_rank[0], one.schedule.stage_rank[-1]
        tied = float(self.found.costs.tied[number])
        if tied and first != last:
            yield self._done(one, (first, last))
            yield self.env.timeout(tied)
        yield self._done(one, range(pp))

    def _done(self, one: _Replica, ranks: Iterable[int]) -> simpy.Event:
        """Pipeline ranks of a replica are through, and their gradients are reduced."""
        events = [event for rank in ranks for event in (one.closed[rank], self.reduced[rank])]
        return self.env.all_of(events)

    def _finish(self) -> Process:
        costs = self.found.costs
        yield self.env.all_of([self.env.process(self._tied(c)) for c in range(len(self.replicas))])
        yield self.env.timeout(float(costs.late[0]))
        yield self.env.timeout(float(costs.norm[0]))
        for (rank, c), seconds in np.ndenumerate(costs.optimizer):
            self.updated[rank, c] = self.env.process(self._update(float(seconds)))
        every = [self.env.process(self._gather(*one)) for one in self.updated]
        yield self.env.all_of(every)
        self.end = self.env.now

    def _update(self, seconds: float) -> Process:
        yield self.env.timeout(seconds)

    def _gather(self, rank: int, number: int) -> Process:
        """Parameters are gathered when all that share them have updated theirs."""
        sharers = np.flatnonzero(self.found.replicas.meets[number]).tolist()
        yield self.env.all_of([self.updated[rank, one] for one in sharers])
        yield self.env.timeout(float(self.found.costs.gather[rank, number]))


def mixed_step_time(found: MixedEvaluation) -> float:
    """Seconds of the step by discrete events.

    Raises:
        InputError: replicas that differ exchange shards in every pass, which is tier B's alone.
    """
    alone = len(found.replicas.first) == int(found.replicas.meets.sum())
    if found.slots.in_step and not alone:
        stage = int(found.pricing.table.zero_stage[0])
        raise InputError(
            f"--events: zero_stage={stage} with dp_shard={found.slots.dp_shard} has replicas on "
            f"nodes of different kinds exchange shards within every pass, which the discrete-event "
            f"tier does not simulate; use zero_stage 0 or 1, let dp_shard span equal replicas "
            f"only, or leave --events out"
        )
    return _Replicas(found).run()
