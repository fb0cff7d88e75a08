"""What a backward through a whole graph needs on a rank, operation by operation.

A network's layers differ, so that the highest moment may be anywhere in its backward.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cost.job import Job
from parsim.plan import PlanTable, Recompute
from parsim.sim.memory.eager_kept import in_buckets


def walked(job: Job, table: PlanTable) -> Flags:
    """Plans whose backward is walked, operation by operation, (B,): a whole graph on a rank."""
    again = (table.recompute != Recompute.NONE) | (table.recompute_layers != 0)
    return np.asarray((table.pp == 1) & ~again & (job.model.graph is not None))


def first_backward(job: Job, table: PlanTable, layer: Array) -> tuple[Array, Array]:
    """Bytes that a first backward needs instead, and beside them the gradients it made, (B,) each.

    Of equal layers its beginning or its end is highest, and both are moments of their own. A
    network's last layers have most weights and its first ones most activations.
    """
    standing = in_buckets(job, table) | (table.zero_stage >= 2)
    rows, nothing = walked(job, table) & ~standing, np.zeros_like(layer)
    if not rows.any():
        return layer, nothing
    beyond, gradients = graph_bytes(job, table, rows, first=True)
    return np.where(rows, beyond - gradients, layer), np.where(rows, gradients, nothing)


def graph_bytes(job: Job, table: PlanTable, rows: Flags, *, first: bool) -> Array:
    """What a backward through a graph needs beyond what is kept, and gradients in it, (2, B).

    Of the plans that `rows` (B,) names; nothing of the others.
    """
    from parsim.cost.layer.kept.graph_backward import Beyond, backward_beyond  # of graphs alone

    graph = job.model.graph
    every = np.zeros((2, len(table)))
    if graph is None:
        return every
    plans = table.take(rows)

    def beyond_with(size: int) -> Beyond:
        samples = PlanTable.of([replace(plans.plan(0), microbatch_size=size)]), size
        return backward_beyond(graph, job.software, lambda _: samples, first=first)

    sizes, where = np.unique(plans.microbatch_size, return_inverse=True)
    beyond = [beyond_with(int(size)) for size in sizes.tolist()]
    every[:, rows] = np.array(beyond)[where].T
    return every
