"""Tier B for a whole step: pipeline, tail and memory of B plans that share a schedule's shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.cost.step import StepCosts, step_costs
from parsim.errors import InputError
from parsim.plan import PlanTable
from parsim.sim.graph import Graph, graph_for
from parsim.sim.maxplus import ClassTimes, Run, run
from parsim.sim.memory import MemoryUse
from parsim.sim.own_costs import on_ranks, own_costs
from parsim.sim.peaks import peak_memory
from parsim.sim.tail import Tail, tail

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Everything tier B knows of B plans of one shape."""

    graph: Graph
    costs: StepCosts
    run: Run
    tail: Tail
    memory: MemoryUse

    @property
    def step_time(self) -> Array:
        """Seconds, (B,)."""
        return self.tail.step_time

    @property
    def busy(self) -> Array:
        """Compute-stream seconds of each rank in the pipeline phase, (p, B)."""
        return busy_time(self.graph, self.costs)

    @property
    def pipeline_time(self) -> Array:
        """From the first action's start to the last action's end, (B,)."""
        return np.asarray(self.run.clock.max(axis=0))

    @property
    def bubble_fraction(self) -> Array:
        """Idle share of the pipeline phase, mean over ranks, (B,)."""
        return bubble_fraction(self.graph, self.costs, self.run)


def busy_time(graph: Graph, costs: StepCosts) -> Array:
    """Compute-stream seconds of each rank in the pipeline phase, (p, B)."""
    schedule = graph.schedule
    both = on_ranks(costs.forward + costs.backward, schedule)
    return np.asarray(both * schedule.num_microbatches)


def bubble_fraction(graph: Graph, costs: StepCosts, result: Run) -> Array:
    """Idle share of the pipeline phase, mean over ranks, (B,); rounding below 1e-12 is 0."""
    idle = 1.0 - busy_time(graph, costs).mean(axis=0) / result.clock.max(axis=0)
    return np.where(np.abs(idle) < 1e-12, 0.0, idle)


def shapes(table: PlanTable) -> Iterator[tuple[tuple[str, int, int, int], NDArray[np.int64]]]:
    """Groups of rows with equal (schedule, pp, num_microbatches, v), in a fixed order.

    Without a pipeline every schedule is the same loop over micro-batches, so pp = 1 rows are
    evaluated as 1F1B whatever they are called.
    """
    names, code = np.unique(table.schedule, return_inverse=True)
    numbers = np.stack([code, table.pp, table.num_microbatches, table.v], axis=1)
    distinct, back = np.unique(numbers, axis=0, return_inverse=True)
    order = np.argsort(back.reshape(-1), kind="stable")
    bounds = np.searchsorted(back.reshape(-1)[order], np.arange(len(distinct) + 1))
    for i, (name, pp, m, v) in enumerate(distinct):
        schedule = str(names[name]) if pp > 1 else "1f1b"
        yield (schedule, int(pp), int(m), int(v)), order[bounds[i] : bounds[i + 1]]


def evaluate(
    job: Job,
    table: PlanTable,
    shape: tuple[str, int, int, int],
    layers: LayerTable | None = None,
    *,
    keep: bool = False,
) -> Evaluation:
    """Simulate plans of one shape.

    Args:
        job: model, cluster, software.
        table: the plans; all have this shape.
        shape: schedule name, pp, number of micro-batches, v.
        layers: their layer costs, where known.
        keep: also keep every action's finish time (for timelines).
    """
    if table.common.replica_microbatches is not None:
        raise InputError(
            "this needs replicas with equal numbers of micro-batches; leave replica_microbatches "
            "out (uneven ones have step time, memory, timeline and search)"
        )
    layers = layers or LayerTable.of(job, table)
    graph = graph_for(*shape, actions=table.common.actions, times=table.common.action_times)
    costs = own_costs(job, table, layers, step_costs(job, table, layers), graph.schedule)
    return finish(job, table, layers, graph, costs, keep=keep)


def finish(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    graph: Graph,
    costs: StepCosts,
    *,
    keep: bool = False,
) -> Evaluation:
    """Run priced plans through pipeline, tail and memory."""
    result = pipeline(graph, costs, keep=keep)
    return Evaluation(
        graph=graph,
        costs=costs,
        run=result,
        tail=tail(graph, costs, result),
        memory=peak_memory(job, table, layers, costs, graph.schedule),
    )


def pipeline(graph: Graph, costs: StepCosts, *, keep: bool = False) -> Run:
    """The pipeline phase, with sends on or beside the compute stream.

    A compact graph is one micro-batch's chain, repeated: stage 0 ends each backward, so the next
    chain begins when it ends, and every clock is that of one chain plus those before it.
    """
    times = ClassTimes.of(graph, costs)
    once = run(graph, times.blocking() if costs.blocking_p2p else times, keep=keep)
    if graph.repeats == 1:
        return once
    before = (graph.repeats - 1) * once.clock[0]
    return Run(clock=once.clock + before, last_end=once.last_end + before, finish=None)
