"""From the pipeline's last backward to the end of the step, for B plans at once.

Gradient buckets of a stage become ready one after another during its last backward and are
reduced in that order on the rank's data-parallel stream; then the tied embedding, the norm of all
gradients (a barrier over all ranks), the optimizer, and what is left of the parameter gather.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.cost.step import StepCosts
from parsim.sim.graph import Graph
from parsim.sim.maxplus import Run

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Times of the step's last part, seconds.

    `reduced` (p, B) is the end of each rank's gradient reduction, `barrier` (B,) when the slowest
    rank is reduced, `updated` (B,) the end of the last update, `step_time` (B,) that with the
    straggler allowance.
    """

    reduced: Array
    barrier: Array
    updated: Array
    step_time: Array


def tail(graph: Graph, costs: StepCosts, result: Run) -> Tail:
    """Finish the step after the pipeline phase."""
    reduced = np.maximum(result.clock, reduce_gradients(graph, costs, result))
    reduced = add_tied(reduced, costs.tied)
    barrier = reduced.max(axis=0)
    updated = (barrier + costs.norm + costs.optimizer + costs.gather).max(axis=0)
    return Tail(
        reduced=reduced,
        barrier=barrier,
        updated=updated,
        step_time=updated * (1.0 + costs.straggler),
    )


def chunk_order(graph: Graph) -> list[list[int]]:
    """Stages of each rank in the order in which their gradients are complete."""
    order: list[list[int]] = []
    for rank in range(graph.schedule.pp):
        stages = graph.schedule.stages_on(rank)
        order.append(sorted(stages, key=lambda s: int(graph.last_backward[s])))
    return order


def reduce_gradients(graph: Graph, costs: StepCosts, result: Run) -> Array:
    """End of gradient reduction on each rank, (p, B).

    K buckets of c seconds over a last backward of W seconds ending at f: bucket k is ready at
    f - W + k W / K, so the stream is free at max(free + K c, f - W + W/K + K c, f + c).
    """
    ends = []
    for rank, stages in enumerate(chunk_order(graph)):
        free = np.zeros(costs.num_plans)
        for stage in stages:
            count, each = costs.buckets[stage], costs.bucket_time[stage]
            finish, length = result.last_end[stage], costs.backward[stage]
            if costs.blocking_p2p and stage > 0 and graph.schedule.stage_rank[stage - 1] != rank:
                finish = finish - costs.hop[stage - 1]
            if costs.overlap_reduce:
                first = finish - length + length / count
                free = np.maximum(np.maximum(free, first) + count * each, finish + each)
            else:
                free = np.maximum(free, result.clock[rank]) + count * each
        ends.append(free)
    return np.stack(ends)


def add_tied(reduced: Array, tied: Array) -> Array:
    """All-reduce of the tied embedding between the first and the last rank."""
    if len(reduced) == 1:
        return reduced
    both = np.maximum(reduced[0], reduced[-1]) + tied
    out = reduced.copy()
    out[0] = np.where(tied > 0, both, reduced[0])
    out[-1] = np.where(tied > 0, both, reduced[-1])
    return out
