"""Measured curves: exact for their group, scaled for others in the node, moved with the links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.arrays import Ints
from parsim.cluster.hardware import Curve, System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.group_bandwidth import groups, one_group
from parsim.cost.collective.kinds import CONSTANTS, CollectiveKind
from parsim.cost.collective.measured_curve import FEW, measured, shape
from parsim.cost.collective.modelled import Shape, bandwidths, modelled
from parsim.units import MIB

CURVE = Curve(
    collective="all_reduce",
    ranks=8,
    nodes=1,
    latency=40e-6,
    bandwidth=100e9,
    ramp=50e-6,
    link=300e9,
    node_bandwidth=None,
    least=1024.0,
    most=1e9,
    source="made up",
)
FOUR_NODES = replace(CURVE, ranks=32, nodes=4, latency=1e-3, node_bandwidth=200e9)


def system(*curves: Curve) -> System:
    return replace(load_catalog().system("dgx-a100"), curves=curves)


@given(size=st.floats(1.0, 1e11))
def test_a_curve_is_what_its_group_takes(size: float) -> None:
    on = system(CURVE)
    took = shape(on, "all_reduce", one_group(on, 8)).seconds(size)[0]
    assert took == pytest.approx(40e-6 + size / 100e9 + 50e-6 * np.sqrt(size / MIB))


def test_other_ranks_in_the_node_scale_as_the_model_does() -> None:
    on = system(CURVE)
    for ranks in (2, 4, 6):
        scaled, bare = (f(on, "all_reduce", one_group(on, ranks)) for f in (shape, modelled))
        modelled_there = modelled(on, "all_reduce", one_group(on, 8))
        assert scaled.latency / bare.latency == pytest.approx(40e-6 / modelled_there.latency)
        assert scaled.bandwidth / bare.bandwidth == pytest.approx(100e9 / modelled_there.bandwidth)
        assert scaled.ramp / bare.ramp == pytest.approx(50e-6 / modelled_there.ramp)


def test_the_nearest_curve_serves() -> None:
    on = system(CURVE, replace(CURVE, ranks=2, latency=7e-6))
    served = [shape(on, "all_reduce", one_group(on, n)).latency[0] for n in (2, 3, 8)]
    assert served[0] == pytest.approx(7e-6)
    assert served[1] < 10e-6
    assert served[2] == pytest.approx(40e-6)


def test_a_curve_across_nodes_serves_its_own_group_only() -> None:
    on = system(CURVE, FOUR_NODES)
    assert shape(on, "all_reduce", one_group(on, 32)).waiting(2.0**20)[0] == pytest.approx(1e-3)
    for where in (one_group(on, 16), one_group(on, 64), one_group(on, 32, stride=8)):
        bare = modelled(on, "all_reduce", where)
        assert shape(on, "all_reduce", where).latency[0] == bare.latency[0]
        assert not measured(on, "all_reduce", where)[0]
    assert measured(on, "all_reduce", one_group(on, 32))[0]


def test_other_collectives_are_not_touched() -> None:
    on = system(CURVE)
    where = one_group(on, 8)
    assert shape(on, "all_gather", where) == modelled(on, "all_gather", where)


@pytest.mark.parametrize(("ranks", "field"), [(8, "link"), (32, "nic")])
def test_a_curve_moves_with_the_links_of_a_scenario(ranks: int, field: str) -> None:
    """It was measured at rates that it states; twice the rate that binds is twice the bandwidth."""
    on = system(CURVE, FOUR_NODES)
    assert on.network is not None
    better = replace(on, intra=replace(on.intra, bandwidth=600e9))
    if field == "nic":
        better = replace(on, network=replace(on.network, nic_bandwidth=50e9))
    where = one_group(on, ranks)
    slow, fast = (shape(cluster, "all_reduce", where) for cluster in (on, better))
    expected = 2.0 if field == "link" else 246.0 / 192.0  # then the links bind
    assert fast.bandwidth / slow.bandwidth == pytest.approx(expected, rel=1e-6)
    assert fast.latency == slow.latency


def test_a_ring_that_no_tree_replaces_takes_a_step_a_rank() -> None:
    """Between 512 and 1,024 ranks: 448 steps inside nodes and 64 between them."""
    on = system()
    small, large = (modelled(on, "all_gather", one_group(on, n)).latency[0] for n in (512, 1024))
    assert large - small == pytest.approx(448 * 1.9e-6 + 64 * 4e-6)
    trees = [modelled(on, "all_reduce", one_group(on, n)) for n in (512, 1024)]
    assert trees[1].latency[0] - trees[0].latency[0] == pytest.approx(15e-6)
    late = [tree.waiting(2.0**20)[0] for tree in trees]
    assert late[1] - late[0] == pytest.approx(60e-6)


def busbw(name: str, ranks: int) -> float:
    """Bus bandwidth that a ring all-reduce in a node tends to, over link and catalogued share."""
    on = replace(load_catalog().system(name), curves=())
    rate = bandwidths(on, "all_reduce", one_group(on, ranks))["ring"][0]
    return float(rate * 2 * (ranks - 1) / ranks / on.intra.bandwidth / on.intra.efficiency)


def test_few_a100_and_bridged_pairs_reach_less_of_a_ring() -> None:
    assert busbw("dgx-a100", 8) == pytest.approx(1.0)
    reached = [busbw("dgx-a100", ranks) for ranks in range(2, 9)]
    assert reached == sorted(reached)
    idle = CONSTANTS.idle["ampere"]
    assert reached[0] == pytest.approx((1 + idle / 14) / (1 + idle / 2))
    for pair in ("a100-nvlink-pairs", "h100-nvlink-pairs"):
        assert 0.85 < busbw(pair, 2) < 0.95


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-b200", "dgx-2", "a100-pcie-node"])
def test_other_rings_reach_the_same_with_any_ranks(name: str) -> None:
    """365 to 370 GB/s for 2 to 8 H100 (nccl issue 1455)."""
    for ranks in (2, 4, 8):
        assert busbw(name, ranks) == pytest.approx(1.0)


def test_gathers_of_few_ranks_stay_as_they_are() -> None:
    on = replace(load_catalog().system("dgx-a100"), curves=())
    for ranks in (2, 8):
        rate = bandwidths(on, "all_gather", one_group(on, ranks))["ring"][0]
        share = rate * (ranks - 1) / ranks / on.intra.bandwidth / on.intra.efficiency
        assert share == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "dgx-1v"])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather"])
def test_few_groups_have_the_figures_of_the_same_among_many(
    name: str, kind: CollectiveKind
) -> None:
    on, sizes = load_catalog().system(name), np.array([2, 4, 8, 16, 64])

    def figures(size: Ints) -> Shape:
        return shape(on, kind, groups(on, size=size, stride=np.ones_like(size), world=8 * size))

    many = figures(np.tile(sizes, FEW))
    for few in (figures(sizes), figures(sizes)):  # worked out, then looked up
        for field in ("latency", "bandwidth", "ramp", "slow", "full"):
            some, all_of_them = (np.asarray(getattr(each, field)) for each in (few, many))
            expected = all_of_them[: len(sizes)] if all_of_them.ndim else all_of_them
            assert np.array_equal(some, expected), field


def test_groups_that_lie_otherwise_or_on_other_links_are_not_taken_for_the_same() -> None:
    on = load_catalog().system("dgx-a100")
    faster = replace(on, intra=replace(on.intra, bandwidth=2.0 * on.intra.bandwidth))
    size, single = np.array([8]), np.array([1])
    near = groups(on, size=size, stride=single, world=64 * single)
    far = groups(on, size=size, stride=8 * single, world=64 * single)
    bandwidths = [
        float(shape(where_on, "all_gather", where).bandwidth[0])
        for where_on, where in ((on, near), (faster, near), (on, far), (on, near))
    ]
    assert len(set(bandwidths)) == 3
    assert bandwidths[0] == bandwidths[3]
