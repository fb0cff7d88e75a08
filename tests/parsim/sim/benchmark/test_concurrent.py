"""Groups at once: hand-solved shares, the closed form of shared interfaces, who shares nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.reader import load_catalog
from parsim.cost.collective.group_bandwidth import groups, inter_bandwidth
from parsim.sim.benchmark.collective_sweep import COLLECTIVES, Collective, sweep
from parsim.sim.benchmark.concurrent import Shared, together
from parsim.sim.benchmark.group_layout import GroupLayout, axis_layout, spread_layout
from parsim.units import GIB

SYSTEMS = load_catalog().systems


def slowdown(
    layout: GroupLayout, kind: Collective, size: int = 64 * GIB
) -> tuple[float, Shared | None]:
    (row,) = together(sweep(layout, [kind], [size])).rows
    return row.slowdown, row.shared


@pytest.mark.parametrize(
    ("system", "nodes", "tp"),
    [("dgx-1v", 2, 8), ("a100-pcie-node", 2, 8), ("dgx-a100", 2, 8), ("dgx-h100", 4, 4)],
)
def test_data_parallel_rings_share_interfaces_as_the_closed_form_says(
    system: str, nodes: int, tp: int
) -> None:
    result = SYSTEMS[system]
    dp = nodes * 8 // tp
    layout = axis_layout(result, nodes, {"tp": tp, "dp": dp})
    size, stride, world = (np.array([x]) for x in (dp, tp, nodes * 8))
    shared = inter_bandwidth(result, groups(result, size=size, stride=stride, world=world))
    alone = inter_bandwidth(result, layout.alone)
    link = result.intra.bandwidth * result.intra.efficiency
    slower, _ = slowdown(layout, "all_reduce")
    assert slower == pytest.approx(min(link, alone[0]) / min(link, shared[0]), rel=2e-3)


def test_eight_rings_through_one_interface() -> None:
    """Alone a ring has the 12.6 GB/s of PCIe, together an eighth of 15 GB/s."""
    layout = axis_layout(SYSTEMS["a100-pcie-node"], 2, {"tp": 8, "dp": 2})
    slower, shared = slowdown(layout, "all_reduce")
    assert slower == pytest.approx(12.6 / (15.0 / 8), rel=1e-3)
    assert shared is not None
    assert (shared.name, shared.link_class, shared.groups) == ("nic:0.0->leaf:0", "nic", 8)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_switch_has_room_for_groups_of_different_devices(kind: Collective) -> None:
    layout = spread_layout(SYSTEMS["dgx-a100"], 1, 2, at_once=4)
    assert slowdown(layout, kind) == (1.0, None)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_the_same_devices_are_shared(kind: Collective) -> None:
    layout = spread_layout(SYSTEMS["dgx-h100"], 2, None, at_once=2)
    slower, shared = slowdown(layout, kind)
    assert 1.0 < slower < 2.0 + 1e-6
    assert shared is not None
    assert shared.groups == 2


def test_host_bridges_are_shared() -> None:
    layout = axis_layout(SYSTEMS["a100-pcie-node"], 1, {"tp": 2, "dp": 4})
    slower, shared = slowdown(layout, "all_reduce")
    assert slower > 1.5
    assert shared is not None
    assert shared.link_class in ("pcie", "cpu")


@pytest.mark.parametrize("at_once", [2, 4])
def test_processors_that_share_cores_take_turns(at_once: int) -> None:
    layout = spread_layout(SYSTEMS["cpu"], 1, 2, at_once)
    result = together(sweep(layout, ["all_reduce"], [8, 1 << 26]))
    assert [row.slowdown for row in result.rows] == pytest.approx([at_once, at_once])


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_one_group_alone_loses_nothing(kind: Collective) -> None:
    for name, nodes in (("dgx-h100", 3), ("dgx-1v", 1), ("a100-pcie-node", 2), ("cpu", 1)):
        assert slowdown(spread_layout(SYSTEMS[name], nodes), kind, 1 << 20) == (1.0, None)


def test_which_group_is_first_does_not_matter() -> None:
    layout = axis_layout(SYSTEMS["dgx-1v"], 2, {"tp": 8, "dp": 2})
    turned = GroupLayout(cluster=layout.cluster, groups=layout.groups[::-1])
    assert slowdown(turned, "all_gather")[0] == slowdown(layout, "all_gather")[0]


@given(size=st.integers(8, 1 << 34), more=st.integers(2, 8))
def test_more_groups_are_never_faster(size: int, more: int) -> None:
    few, many = (
        slowdown(spread_layout(SYSTEMS["dgx-1v"], 2, 2, count), "all_gather", size)[0]
        for count in (more - 1, more)
    )
    assert 1.0 <= few <= many * (1.0 + 1e-9)


def test_small_messages_keep_their_latency() -> None:
    layout = axis_layout(SYSTEMS["a100-pcie-node"], 2, {"tp": 8, "dp": 2})
    assert slowdown(layout, "all_reduce", 8)[0] < 1.01
