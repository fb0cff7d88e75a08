"""A plain simulation of late ranks, one by one: the reference for blocks of late steps.

Every rank has its own clock and its own draws for each action; it knows its peers and nothing of
the others. Slow and simple on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsim.arrays import Array, Index
from parsim.cost.step.costs import StepCosts
from parsim.schedule import Kind
from parsim.sim.lateness.draws import Block
from parsim.sim.lateness.pipelines import RankGrid, Seconds
from parsim.sim.recurrence.maxplus import ClassTimes
from parsim.sim.step.compiled_schedule import KINDS, CompiledSchedule
from parsim.sim.step.schedule_costs import compute_seconds


class RecordedBlock(Block):
    """A block that keeps every member's lateness, by action; the optimizer's by -1 - rank."""

    def record(self) -> None:
        self.kept: dict[int, Array] = {}
        self.start = 0

    def _apart(
        self, first: int, ranks: Sequence[int], seconds: Sequence[Seconds]
    ) -> Iterator[Array]:
        self.start = first
        return super()._apart(first, ranks, seconds)

    def late_update(
        self, rank: int, seconds: Sequence[float], classes: Sequence[Index]
    ) -> list[Array | float]:
        self.start = -1 - rank
        return super().late_update(rank, seconds, classes)

    def factors(self, ranks: Sequence[int]) -> NDArray[np.float32]:
        result = super().factors(ranks)
        for number, drawn in enumerate(result):
            self.kept[self.start + number] = drawn.astype(np.float64)
        return result

    def stopped(self, action: int) -> Array:
        """Hiccups of every member within an action."""
        result = np.zeros((self.ranks.members, *self.shape))
        stops = self._stops.get(action)
        if stops is not None:
            for member, column, seconds in zip(
                stops.member, stops.column, stops.seconds, strict=True
            ):
                result.reshape(self.ranks.members, -1)[member, column] += seconds
        return result


class Action(NamedTuple):
    """One action of one rank of one step: when it ended, and how long it took there."""

    end: float
    length: float


def step_time(
    graph: CompiledSchedule, costs: StepCosts, ranks: RankGrid, block: RecordedBlock, step: int
) -> float:
    """Seconds of one step of the block, from each member's own draws."""
    times = ClassTimes.of(graph, costs)
    times = times.blocking() if costs.blocking_p2p else times
    compute = compute_seconds(costs)
    clock = np.zeros((ranks.pp, ranks.groups, ranks.members))
    ended: dict[int, list[list[Action]]] = {}
    for action in range(graph.num_actions):
        row, what = int(graph.rank[action]), int(graph.duration_class[action])
        stage, kind = divmod(what, KINDS)
        before, source = int(graph.before[action]) - 1, int(graph.source[action]) - 1
        drawn, hiccups = block.kept[action], block.stopped(action)
        wholes, parts = times.duration[what], compute[Kind(kind)][stage]
        begun = np.zeros((ranks.groups, ranks.members))
        took = np.zeros_like(begun)
        for group in range(ranks.groups):
            whole, part = _own(wholes, group), _own(parts, group)
            for member in range(ranks.members):
                start = ended[before][group][member].end if before >= 0 else 0.0
                if source >= 0:
                    hop = _own(times.hop[int(graph.duration_class[source])], group)
                    if int(graph.rank[source]) == row:
                        hop = 0.0
                    start = max(start, ended[source][group][member].end + hop)
                factor = np.exp(drawn[member, group, step])
                begun[group, member] = start
                took[group, member] = part * factor + hiccups[member, group, step] + whole - part
        ended[action] = _met(begun, took, _replicas(ranks, kind))
        clock[row] = [[entry.end for entry in group] for group in ended[action]]
    reduced = np.maximum(clock, _reduced(graph, costs, clock, ended))
    first, last = graph.schedule.stage_rank[0], graph.schedule.stage_rank[-1]
    if first != last and costs.tied[0] > 0:
        both = np.maximum(reduced[first], reduced[last])
        reduced[first] = reduced[last] = both + costs.tied[:, None]
    barrier = float(reduced.max()) + float(costs.late[0]) + float(costs.norm[0])
    updates = [
        barrier
        + _own(costs.optimizer[row], group) * float(np.exp(most))
        + _own(costs.gather[row], group)
        for row in range(ranks.pp)
        for group, most in enumerate(block.kept[-1 - row][..., step].max(axis=0))
    ]
    return max(updates)


def _own(values: Array, group: int) -> float:
    """A replica's, of one column for all or of one for each."""
    return float(values[group % len(values)])


def _replicas(ranks: RankGrid, kind: int) -> int:
    meets: Mapping[int, int] = {
        Kind.F: ranks.meet_forward,
        Kind.B: max(ranks.meet_forward, ranks.meet_backward),
        Kind.I: ranks.meet_forward,
        Kind.W: ranks.meet_backward,
    }
    return meets[kind]


def _met(begun: Array, took: Array, replicas: int) -> list[list[Action]]:
    """Members of a group end together, and so do replicas that exchange shards."""
    alone = (begun + took).max(axis=1)
    length = took.max(axis=1)
    collected = []
    for group in range(len(begun)):
        low = group // replicas * replicas
        end = float(alone[low : low + replicas].max())
        collected.append([Action(end, float(length[group]))] * begun.shape[1])
    return collected


def _reduced(
    graph: CompiledSchedule, costs: StepCosts, clock: Array, ended: Mapping[int, list[list[Action]]]
) -> Array:
    """Buckets one by one: each waits for the stream and for the last replica to have made it."""
    schedule = graph.schedule
    out = np.zeros_like(clock)
    for row in range(schedule.pp):
        order = sorted(schedule.stages_on(row), key=lambda s: int(graph.last_backward[s]))
        free = 0.0
        for stage in order:
            count, each = int(costs.buckets[stage, 0]), float(costs.bucket_time[stage, 0])
            send = 0.0
            if costs.blocking_p2p and stage and schedule.stage_rank[stage - 1] != row:
                send = 1.0
            done = [group[0] for group in ended[int(graph.last_backward[stage])]]
            sends = [send * _own(costs.hop[stage - 1], group) for group in range(len(done))]
            for bucket in range(1, count + 1):
                made = [
                    entry.end - hop - (entry.length - hop) * (1 - bucket / count)
                    for entry, hop in zip(done, sends, strict=True)
                ]
                ready = max(made) if costs.overlap_reduce else float(clock[row].max())
                free = max(free, ready) + each
        out[row] = free
    return out
