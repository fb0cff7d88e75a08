"""Tier B on a mixed cluster: replicas that differ, each with its own times and micro-batches.

A replica's pipeline runs by itself until its gradients are reduced, so each class of replicas is a
column of the max-plus recurrence; classes with different numbers of micro-batches have schedules of
their own. Replicas that exchange shards (ZeRO-2 and 3) end those actions together. Then

    bucket     starts when the slowest replica has made it
    norm       a barrier over all ranks
    gather     after the slowest update of those that share the parameters

With equal nodes the arithmetic is that of `maxplus` and `tail`, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.mixed import in_groups
from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.cost.step import StepCosts
from parsim.plan import Plan, PlanTable
from parsim.schedule import Kind
from parsim.sim.evaluate import busy_time, pipeline
from parsim.sim.graph import KINDS, Graph, graph_for
from parsim.sim.maxplus import ClassTimes, Run, sender_class
from parsim.sim.memory import MemoryUse
from parsim.sim.mixed_costs import Pricing, mixed_costs
from parsim.sim.peaks import peak_memory
from parsim.sim.slots import Flags, Replicas, Slots, fold_replicas
from parsim.sim.tail import Tail, add_tied, chunk_order, last_backwards, tied_owners

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedEvaluation:
    """Everything tier B knows of one plan; columns are classes of replicas.

    `graphs` and `runs` (of one column each) are those of each class, `memory` by the number of
    micro-batches.
    """

    slots: Slots
    replicas: Replicas
    pricing: Pricing
    costs: StepCosts
    graphs: tuple[Graph, ...]
    runs: tuple[Run, ...]
    tail: Tail
    memory: dict[int, MemoryUse]

    @property
    def step_time(self) -> float:
        """Seconds."""
        return float(self.tail.step_time[0])

    @property
    def clock(self) -> Array:
        """End of each rank's last action, (p, C)."""
        return np.concatenate([run.clock for run in self.runs], axis=1)

    @property
    def busy(self) -> Array:
        """Compute-stream seconds of each rank in the pipeline phase, (p, C)."""
        return np.concatenate(
            [busy_time(graph, self.column(c)) for c, graph in enumerate(self.graphs)], axis=1
        )

    @property
    def peak(self) -> Array:
        """Bytes at the peak of each rank, (p, C)."""
        return np.stack([self.memory_of(c).peak[:, 0] for c in range(len(self.graphs))], axis=1)

    def column(self, number: int) -> StepCosts:
        """The costs of one class."""
        return self.costs.rows(np.array([number]))

    def memory_of(self, number: int) -> MemoryUse:
        """The bytes of one class."""
        return self.memory[self.graphs[number].schedule.num_microbatches]


def evaluate_mixed(
    job: Job,
    plan: Plan,
    *,
    layers: Sequence[LayerTable] = (),
    slots: Slots | None = None,
    replicas: Replicas | None = None,
    keep: bool = False,
    memory: bool = True,
) -> MixedEvaluation:
    """Simulate one plan on a mixed cluster.

    Args:
        job: model, cluster, software.
        plan: a legal plan.
        layers: layer costs on each group's nodes, where known.
        slots: where its ranks lie, where known.
        replicas: their classes; None: folded as far as they are alike.
        keep: also keep every action's finish time (for timelines).
        memory: also count bytes.
    """
    job = replace(job, cluster=in_groups(job.cluster))
    slots = slots or Slots.of(job.cluster, plan)
    replicas = replicas or fold_replicas(slots)
    table = PlanTable.of([plan])
    counts = slots.microbatches[replicas.first].tolist()
    graphs = {count: _graph(plan, count) for count in sorted(set(counts))}
    schedule = graphs[counts[0]].schedule
    pricing = Pricing(job, table, schedule, slots.world, layers)
    costs = mixed_costs(pricing, slots, replicas)
    own = tuple(graphs[count] for count in counts)
    runs = _runs(own, costs, replicas.meets if slots.in_step else None, plan.zero_stage, keep)
    return MixedEvaluation(
        slots=slots,
        replicas=replicas,
        pricing=pricing,
        costs=costs,
        graphs=own,
        runs=runs,
        tail=mixed_tail(own, costs, runs, replicas.meets),
        memory={count: _memory(pricing, graph, slots) for count, graph in graphs.items() if memory},
    )


def _graph(plan: Plan, microbatches: int) -> Graph:
    name = plan.schedule if plan.pp > 1 else "1f1b"
    return graph_for(
        name, plan.pp, microbatches, plan.v, actions=plan.actions, times=plan.action_times
    )


def _memory(pricing: Pricing, graph: Graph, slots: Slots) -> MemoryUse:
    """Bytes do not depend on the kind of node, only on how many micro-batches there are."""
    group = int(slots.kinds[0, 0]).bit_length() - 1
    job, own = pricing.job.on(pricing.job.cluster.systems[group]), 1 << group
    costs = pricing.costs((group, own, own))
    return peak_memory(job, pricing.table, pricing.layers(group), costs, graph.schedule)


def _runs(
    graphs: tuple[Graph, ...], costs: StepCosts, meets: Flags | None, zero_stage: int, keep: bool
) -> tuple[Run, ...]:
    """The pipeline phase of each class; those with equal schedules at once."""
    found: dict[int, Run] = {}
    for graph in dict.fromkeys(map(id, graphs)):
        mine = np.array([c for c, one in enumerate(graphs) if id(one) == graph])
        one, group = graphs[int(mine[0])], costs.rows(mine)
        if meets is None or meets[np.ix_(mine, mine)].sum() == len(mine):
            run = pipeline(one, group, keep=keep)
        else:
            run = in_step(one, group, meets[np.ix_(mine, mine)], zero_stage)
        found |= {int(c): _column(run, i) for i, c in enumerate(mine)}
    return tuple(found[c] for c in range(len(graphs)))


def _column(run: Run, number: int) -> Run:
    one = [number]
    finish = None if run.finish is None else run.finish[:, one]
    return Run(clock=run.clock[:, one], last_end=run.last_end[:, one], finish=finish)


def in_step(graph: Graph, costs: StepCosts, meets: Flags, zero_stage: int) -> Run:
    """The pipeline phase of replicas that end their actions together.

    ZeRO-3 gathers parameters in every forward and, as ZeRO-2, scatters gradients in every backward.

    Leaves out: that they meet layer by layer, so that one may be late in one layer and another in
    the next.
    """
    times = ClassTimes.of(graph, costs)
    times = times.blocking() if costs.blocking_p2p else times
    gathers = zero_stage == 3
    together = {Kind.F: gathers, Kind.B: True, Kind.I: gathers, Kind.W: True}
    finish = np.zeros((graph.num_actions + 1, costs.num_plans))
    rows = (graph.before, graph.source, graph.duration_class, sender_class(graph))
    for place, (before, source, what, sent) in enumerate(zip(*map(np.ndarray.tolist, rows),
                                                             strict=True)):  # fmt: skip
        start = np.maximum(finish[before], finish[source] + times.hop[sent])
        end = start + times.duration[what]
        if together[Kind(what % KINDS)]:
            end = np.where(meets, end, -np.inf).max(axis=1)
        finish[place + 1] = end
    return Run(
        clock=finish[graph.final], last_end=finish[graph.last_backward + 1], finish=finish[1:]
    )


def mixed_tail(
    graphs: tuple[Graph, ...], costs: StepCosts, runs: tuple[Run, ...], meets: Flags
) -> Tail:
    """From the last backwards to the end of the step; see `tail`. Columns of `reduced` are classes.

    Buckets of a replica are made at an even pace, so that the slowest replica of the first or of
    the last bucket decides (as in `plane.reduce_gradients`).
    """
    clock = np.concatenate([run.clock for run in runs], axis=1)
    ends = np.zeros((len(clock), 1))
    for one in reductions(graphs, costs, runs):
        ends[one.rank] = one.end
    reduced = np.maximum(clock, ends)
    reduced = add_tied(reduced, costs.tied, tied_owners(graphs[0]))
    barrier = reduced.max() + costs.late[:1]
    update = barrier + costs.norm + costs.optimizer
    updated = (latest_update(update, meets) + costs.gather).max(keepdims=True).reshape(1)
    return Tail(
        reduced=reduced,
        barrier=barrier,
        updated=updated,
        step_time=updated * (1.0 + costs.straggler[:1]),
    )


class Reduction(NamedTuple):
    """When the replicas of a pipeline rank reduce a stage's gradients, seconds."""

    rank: int
    stage: int
    start: float
    end: float


def reductions(
    graphs: tuple[Graph, ...], costs: StepCosts, runs: tuple[Run, ...]
) -> Iterator[Reduction]:
    """Every stage's, in the order of each rank's data-parallel stream."""
    clock = np.concatenate([run.clock for run in runs], axis=1)
    both = [last_backwards(graph, costs) for graph in graphs]
    length = np.stack([lengths[:, c] for c, (lengths, _) in enumerate(both)], axis=1)
    sent = np.stack([sends[:, c] for c, (_, sends) in enumerate(both)], axis=1)
    made = np.concatenate([run.last_end for run in runs], axis=1) - sent
    for rank, stages in enumerate(chunk_order(graphs[0])):
        free = 0.0
        for stage in stages:
            count, each = float(costs.buckets[stage, 0]), float(costs.bucket_time[stage, 0])
            if costs.overlap_reduce:
                first = float((made[stage] - length[stage] + length[stage] / count).max())
                start = max(free, first)
                free = max(start + count * each, float(made[stage].max()) + each)
            else:
                start = max(free, float(clock[rank].max()))
                free = start + count * each
            yield Reduction(rank, stage, start, free)


def latest_update(update: Array, meets: Flags) -> Array:
    """When the slowest of those that share a rank's parameters has updated them, (p, C)."""
    return np.asarray(np.where(meets, update[:, None, :], -np.inf).max(axis=2))
