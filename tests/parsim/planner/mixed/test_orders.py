"""Orders of groups of nodes: all of five groups, whatever they are called, and some of six."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from parsim.cluster.hardware import Cluster
from parsim.planner import search
from parsim.planner.mixed.orders import LARGEST_NUMBER, orders, untried
from tests.parsim.planner.mixed.test_best_first import SPACE
from tests.parsim.sim.mixed_clusters import cluster_of, job_on, node, slower


def unlike(names: str) -> Cluster:
    """A node each of as many kinds, each slower than the one before by name."""
    systems = {name: slower(node("dgx-h100"), 1.0 + ord(name) - ord("a")) for name in names}
    return cluster_of(**{name: (systems[name], 1) for name in names})


def kinds(cluster: Cluster) -> set[tuple[str, ...]]:
    """The systems that ranks meet one after another in each order."""
    systems = {group.name: repr(group.system) for group in cluster.groups}
    return {tuple(systems[name] for name in order) for order in orders(cluster)}


def test_all_orders_of_five_groups() -> None:
    cluster = unlike("abcde")
    assert set(orders(cluster)) == set(permutations("abcde"))
    assert untried(cluster) == ""
    alike = cluster_of(**{name: (node("dgx-h100"), 1) for name in "abcde"})
    assert len(orders(alike)) == 1


@pytest.mark.parametrize("names", ["fedcba", "badcfe"])
def test_which_orders_of_six_groups_does_not_depend_on_their_place(names: str) -> None:
    first, other = unlike("abcdef"), unlike(names)
    assert kinds(first) == kinds(other)
    assert len(orders(first)) == LARGEST_NUMBER
    assert {order[0] for order in orders(first)} == {*"abcdef"}
    assert untried(first) == "120 of 720 orders of the groups of nodes"


def test_a_search_says_how_many_orders_it_tried() -> None:
    some = replace(SPACE, tp=(2,), pp=(6,), v=(1,), zero_stage=(0,), microbatch_size=(1,))
    space = replace(some, global_batch_size=2, schedule=("1f1b",))
    result = search(job_on(unlike("abcdef")), space, top=1)
    assert "fits (120 of 720 orders of the groups of nodes, pp outside" in result.optimality
    assert result.left_out["node_order"] == "all but 120 of 720 orders of the groups of nodes"
    counts = result.counts
    kept = counts["slower"] + counts["evaluated"]
    assert counts["placed"] == counts["out_of_memory"] + counts["tight"] + kept
