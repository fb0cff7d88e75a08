"""What a backward through a whole graph needs on a rank, operation by operation.

A network's layers differ, so that the highest moment may be anywhere in its backward.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.layer.layers import recomputes_layers
from parsim.cost.software import Software
from parsim.model.graph.record import Graph
from parsim.plan import PlanTable, Recompute
from parsim.sim.memory.eager_kept import in_buckets


def walked(job: Job, table: PlanTable) -> Graph | None:
    """The graph whose backward is walked, operation by operation: where it is whole on a rank."""
    whole = bool((table.recompute == Recompute.NONE).all()) and int(table.pp[0]) == 1
    return job.model.graph if whole and not recomputes_layers(table) else None


def first_backward(job: Job, table: PlanTable, layer: Array) -> tuple[Array, Array]:
    """Bytes that a first backward needs instead, and beside them the gradients it made, (B,) each.

    Of equal layers its beginning or its end is highest, and both are moments of their own. A
    network's last layers have most weights and its first ones most activations.
    """
    graph, nothing = walked(job, table), np.zeros_like(layer)
    standing = in_buckets(job, table) | (table.zero_stage >= 2)
    if graph is None or standing.all():
        return layer, nothing
    bytes_of = graph_bytes(graph, job.software, table, first=True)
    gradients = np.where(standing, 0.0, bytes_of[1])
    return np.where(standing, layer, bytes_of[0] - gradients), gradients


def graph_bytes(graph: Graph, software: Software, table: PlanTable, *, first: bool) -> Array:
    """What a backward through a graph needs beyond what is kept, and gradients in it, (2, B)."""
    from parsim.cost.layer.kept.graph_backward import Beyond, backward_beyond  # of graphs alone

    def beyond_with(size: int) -> Beyond:
        samples = PlanTable.of([replace(table.plan(0), microbatch_size=size)]), size
        return backward_beyond(graph, software, lambda _: samples, first=first)

    sizes, where = np.unique(table.microbatch_size, return_inverse=True)
    beyond = [beyond_with(int(size)) for size in sizes.tolist()]
    return np.asarray(np.array(beyond)[where].T)
