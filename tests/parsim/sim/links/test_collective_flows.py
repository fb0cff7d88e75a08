"""Collectives as flows: the closed form on an idle network, sharing where links are shared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import groups, inter_bandwidth
from parsim.cost.collective.kinds import CollectiveKind
from parsim.sim.links.collective_flows import by_node, pattern, together
from tests.parsim.sim.links.link_graphs import RailGraph, collective_flow, message_flow, placed

KINDS: tuple[CollectiveKind, ...] = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce",
)  # fmt: skip


def system_of(name: str) -> System:
    return load_catalog().system(name)


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "gcp-a3-high", "dgx-b200"])
@pytest.mark.parametrize("ranks", [range(2), range(8), range(16), range(0, 32, 8), range(4, 12)])
def test_alone_every_collective_takes_its_closed_form(name: str, ranks: range) -> None:
    system = system_of(name)
    graph = RailGraph(Cluster(system=system, num_nodes=4))
    where = placed(system, list(ranks))
    for kind in KINDS:
        for size in (4.0, 1e6, 1e9):
            flow = collective_flow(system, graph, kind, size, list(ranks))
            expected = float(collective_time(system, kind, size, where)[0])
            assert together([flow], graph).end[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("target", [1, 8, 11])
def test_alone_a_message_takes_its_closed_form(target: int) -> None:
    system = system_of("dgx-h100")
    graph = RailGraph(Cluster(system=system, num_nodes=2))
    flow = message_flow(system, graph, 1e8, 0, target)
    expected = float(p2p_time(system, 1e8, crosses=target > 7, sharing=1.0))
    assert together([flow], graph).end[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("name", "shared"), [("gcp-a3-high", 2.0), ("dgx-a100", 1.0)])
def test_eight_rings_share_interfaces_as_the_closed_form_says(name: str, shared: float) -> None:
    """8 rings over 4 nodes, one rank a node each: 4 interfaces a node make each ring half as fast
    as one alone, which is `sharing` in group_bandwidth.py; 8 interfaces make it no slower."""
    system = replace(system_of(name), curves=())
    graph = RailGraph(Cluster(system=system, num_nodes=4))
    rings = [list(range(first, 32, 8)) for first in range(8)]
    flows = [collective_flow(system, graph, "all_gather", 1e9, ring) for ring in rings]
    ends = together(flows, graph).end
    column = {"size": 4, "stride": 8, "world": 32}
    where = groups(system, **{key: np.array([value]) for key, value in column.items()})
    alone = inter_bandwidth(system, placed(system, rings[0]))[0]
    assert alone / inter_bandwidth(system, where)[0] == pytest.approx(shared)
    rate = min(flows[0].limit, float(inter_bandwidth(system, where)[0]))
    assert ends - flows[0].latency == pytest.approx(np.full(8, flows[0].size / rate), rel=1e-9)
    assert rate * shared == pytest.approx(flows[0].limit, rel=1e-3)


def test_two_rings_in_one_node_share_its_links() -> None:
    """Rings of all 8 devices want all of each NVLink: together each takes twice as long."""
    system = system_of("dgx-a100")
    graph = RailGraph(Cluster(system=system, num_nodes=1))
    ring = collective_flow(system, graph, "all_gather", 1e9, range(8))
    full = ring.limit * ring.usage[0] / graph.effective[0]
    both = together([ring, ring], graph).end
    slower = max(1.0, 2.0 * full)
    assert both - ring.latency == pytest.approx(ring.size / ring.limit * slower, rel=1e-9)
    assert slower > 1.5


def test_names_of_ranks_do_not_matter() -> None:
    """Any node for any other, any rail for any other: the same seconds."""
    system = system_of("dgx-h100")
    collected = []
    for first, second in (((0, 8), (0, 8, 16)), ((19, 3), (3, 27, 11)), ((31, 23), (31, 7, 23))):
        graph = RailGraph(Cluster(system=system, num_nodes=4))
        flows = [collective_flow(system, graph, "all_reduce", 1e8, ranks)
                 for ranks in (first, second)]  # fmt: skip
        collected.append(together(flows, graph).end.tolist())
    assert collected[0] == pytest.approx(collected[1], rel=1e-12)
    assert collected[0] == pytest.approx(collected[2], rel=1e-12)


def test_bytes_on_the_wire_are_those_of_the_algorithm() -> None:
    nodes = by_node(range(32), 8)
    for algorithm, out in (("ring", 2 * 31 / 32), ("nvls_tree", 2 * 3 / 4), ("collnet", 1.0)):
        made = pattern("all_reduce", algorithm, nodes)  # type: ignore[arg-type]
        leaving = sum(units for a, b, units in made.edges if a // 8 != b // 8)
        assert leaving * made.share / 4 == pytest.approx(out), algorithm
    ring = pattern("all_reduce", "ring", nodes)
    sent = sum(units for a, _, units in ring.edges if a == 5) * ring.share
    assert sent == pytest.approx(2 * 31 / 32)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 13])
def test_each_tree_reaches_every_node(count: int) -> None:
    made = pattern("all_reduce", "tree", [[rank] for rank in range(count)])
    assert len(made.edges) == 4 * (count - 1)
    reached = {0}
    for _ in range(count):
        reached |= {b for a, b, _ in made.edges if a in reached}
    assert reached == set(range(count))


def test_an_unequal_group_leaves_every_node_alike() -> None:
    made = pattern("all_gather", "ring", by_node(range(4, 11), 8))
    out = {node: sum(u for a, b, u in made.edges if a // 8 == node != b // 8) for node in (0, 1)}
    assert out == pytest.approx({0: 4.0, 1: 4.0})
