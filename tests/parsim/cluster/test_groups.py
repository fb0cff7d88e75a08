"""Groups of nodes: which group each rank is in, and what cannot be one cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.groups import in_groups, mixed_cluster, node_groups, order_problem, rank_groups
from parsim.cluster.hardware import Cluster, NodeGroup
from parsim.cluster.reader import load_catalog
from parsim.errors import CatalogError, PlanError

FAST = replace(load_catalog().system("dgx-h100"), devices_per_node=4)
SLOW = replace(load_catalog().system("dgx-a100"), devices_per_node=2)


def group(name: str, nodes: int = 2, small: bool = False) -> NodeGroup:
    return NodeGroup(name=name, system=SLOW if small else FAST, num_nodes=nodes)


MIXED = mixed_cluster([group("fast"), group("slow", 2, small=True)])


def test_sizes_and_words() -> None:
    assert (MIXED.num_nodes, MIXED.num_devices) == (4, 12)
    assert [device.id for device in MIXED.devices] == ["h100-sxm-80gb", "a100-sxm-80gb"]
    assert MIXED.words == "2 x dgx-h100 (fast) + 2 x dgx-a100 (slow)"
    assert Cluster(system=FAST, num_nodes=3).words == "3 x dgx-h100"


def test_ranks_fill_nodes_in_order() -> None:
    assert rank_groups(MIXED).tolist() == [0] * 8 + [1] * 4
    equal = mixed_cluster([group("a"), group("b")])
    assert node_groups(equal, ("b", "a")) == (1, 1, 0, 0)
    assert node_groups(equal, ("a", "b", "a", "b")) == (0, 1, 0, 1)
    assert node_groups(equal, ("a", "b", "b")) == (0, 0, 1, 1)


def test_a_placement_puts_ranks_on_devices() -> None:
    both = mixed_cluster([group("a", 1), group("b", 1)])
    placed = replace(both, placement=(7, 6, 5, 4, 3, 2, 1, 0))
    assert rank_groups(placed).tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


def test_one_kind_is_one_group() -> None:
    alike = in_groups(Cluster(system=FAST, num_nodes=3))
    assert [(g.name, g.num_nodes) for g in alike.groups] == [("dgx-h100", 3)]
    assert in_groups(MIXED) is MIXED


@pytest.mark.parametrize(
    ("order", "told"),
    [
        (("fast", "slw"), "names group 'slw' (did you mean 'slow'?); allowed: fast, slow"),
        (("fast",), "names group 'slow' 0 times; allowed: once, for all its nodes, or 2 times"),
        (("fast", "slow", "slow", "slow"), "names group 'slow' 3 times"),
    ],
)
def test_orders_that_do_not_fit(order: tuple[str, ...], told: str) -> None:
    message = order_problem(MIXED, order)
    assert message is not None
    assert told in message
    with pytest.raises(PlanError, match="node_order"):
        node_groups(MIXED, order)


def test_an_order_needs_groups() -> None:
    message = order_problem(Cluster(system=FAST, num_nodes=2), ("a", "b"))
    assert message is not None
    assert "all nodes are alike" in message


def test_nodes_begin_at_multiples_of_their_size() -> None:
    odd = mixed_cluster([group("slow", 1, small=True), group("fast", 2)])
    message = order_problem(odd, None)
    assert message is not None
    assert "would begin at rank 2, which is no multiple of its 4 devices" in message
    assert order_problem(odd, ("fast", "slow")) is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "at least one group"),
        ([group("a"), group("a")], "each name must stand once"),
        ([group("a", 0)], "nodes=0 must be at least 1"),
        (
            [group("a"), NodeGroup(name="b", system=replace(SLOW, network=None), num_nodes=1)],
            "group b: system dgx-a100 has no network, so its nodes cannot be joined to 2 others",
        ),
        (
            [group("a"), NodeGroup(name="b", system=replace(SLOW, library="gloo"), num_nodes=1)],
            "group b communicates by gloo and others by NCCL",
        ),
    ],
)
def test_groups_that_cannot_be_one_cluster(groups: list[NodeGroup], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        mixed_cluster(groups)
