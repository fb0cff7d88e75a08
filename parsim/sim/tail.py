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
from parsim.schedule import Kind
from parsim.sim.graph import KINDS, Graph
from parsim.sim.maxplus import Run
from parsim.sim.own_costs import weight_times

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Times of the step's last part, seconds.

    `reduced` (p, B) is the end of each rank's gradient reduction; `barrier` (B,) when the slowest
    rank is reduced and what its compute lost beside the reduction is made up; `updated` (B,) the
    end of the last update; `step_time` (B,) that with the straggler allowance.
    """

    reduced: Array
    barrier: Array
    updated: Array
    step_time: Array


def tail(graph: Graph, costs: StepCosts, result: Run) -> Tail:
    """Finish the step after the pipeline phase."""
    reduced = np.maximum(result.clock, reduce_gradients(graph, costs, result))
    reduced = add_tied(reduced, costs.tied, tied_owners(graph))
    barrier = reduced.max(axis=0) + costs.late
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

    K buckets of c seconds over a last backward (B or W) of L seconds ending at f: bucket k is
    ready at f - L + k L / K, so the stream is free at max(free + K c, f - L + L/K + K c, f + c).
    """
    lengths, sent = last_backwards(graph, costs)
    ends = []
    for rank, stages in enumerate(chunk_order(graph)):
        free = np.zeros(costs.num_plans)
        for stage in stages:
            count, each = costs.buckets[stage], costs.bucket_time[stage]
            finish, length = result.last_end[stage] - sent[stage], lengths[stage]
            if costs.overlap_reduce:
                first = finish - length + length / count
                free = np.maximum(np.maximum(free, first) + count * each, finish + each)
            else:
                free = np.maximum(free, result.clock[rank]) + count * each
        ends.append(free)
    return np.stack(ends)


def last_backwards(graph: Graph, costs: StepCosts) -> tuple[Array, Array]:
    """Of the action that completes each stage's gradients: its seconds, and those of its send.

    A blocking send is on the compute stream behind a B; a W sends nothing. Both (S, B).
    """
    by_weight = (graph.duration_class[graph.last_backward] % KINDS == Kind.W)[:, None]
    sent = np.zeros_like(costs.hop)
    if costs.blocking_p2p:
        rank = np.array(graph.schedule.stage_rank)
        moves = (rank[1:] != rank[:-1])[:, None] & ~by_weight[1:]
        sent[1:] = np.where(moves, costs.hop[:-1], 0.0)
    return np.where(by_weight, weight_times(costs), costs.backward), sent


def tied_owners(graph: Graph) -> tuple[int, int]:
    """The ranks of the first and the last stage, which hold the tied table."""
    return graph.schedule.stage_rank[0], graph.schedule.stage_rank[-1]


def add_tied(reduced: Array, tied: Array, owners: tuple[int, int]) -> Array:
    """All-reduce of the tied embedding between the two ranks that hold it."""
    first, last = owners
    if first == last:
        return reduced
    both = np.maximum(reduced[first], reduced[last]) + tied
    out = reduced.copy()
    out[first] = np.where(tied > 0, both, reduced[first])
    out[last] = np.where(tied > 0, both, reduced[last])
    return out
