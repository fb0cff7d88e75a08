"""Links with so much room that nothing contends, on which tier C must be tier B."""

from __future__ import annotations

from parsim.cluster.topology import Graph, build_graph
from parsim.cost.job import Job


def wide(job: Job, order: tuple[str, ...] | None = None) -> Graph:
    """The links of a job's cluster, a million times as fast as they are.

    Args:
        job: whose cluster.
        order: of its groups of nodes, where they are mixed.
    """
    graph = build_graph(job.cluster, order=order)
    return graph.with_links(effective=graph.effective * 1e6)
