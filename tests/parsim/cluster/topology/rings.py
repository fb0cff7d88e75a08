"""What a ring of ranks crosses of a graph of links."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from parsim.cluster.topology import Graph


def crossed(graph: Graph, ranks: Sequence[int]) -> Mapping[str, int]:
    """Links that a ring over the ranks crosses: class -> number of different links."""
    ring = [*ranks, *ranks[:1]]
    links = {link for a, b in pairwise(ring) for link in graph.route(a, b)}
    return Counter(str(graph.link_class[link]) for link in links)
