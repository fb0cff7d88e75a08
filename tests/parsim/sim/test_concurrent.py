"""Groups at once: hand-solved shares, the closed form of shared interfaces, who shares nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from parsim.cluster.reader import load_catalog
from parsim.cost.placed import groups, inter_bandwidth
from parsim.sim.collective_sweep import COLLECTIVES, Collective, sweep
from parsim.sim.concurrent import contention, shares, together
from parsim.sim.group_layout import Layout, axis_layout, spread_layout

GIB = 1 << 30
SYSTEMS = load_catalog().systems


def test_two_groups_halve_a_link_and_a_third_takes_what_is_left() -> None:
    """Links of groups a b c: a and b share the first, c has the second with a."""
    use = np.array([[1.0, 0.5], [1.0, 0.0], [0.0, 1.0]])
    kept, at = shares(use)
    np.testing.assert_allclose(kept, [0.5, 0.5, 0.75])
    assert at.tolist() == [0, 0, 1]


def test_nobody_waits_where_links_have_room() -> None:
    kept, at = shares(np.array([[1.0, 0.3, 0.0], [0.0, 0.7, 1.0]]))
    assert kept.tolist() == [1.0, 1.0]
    assert at.tolist() == [-1, -1]


@given(
    arrays.arrays(np.float64, (4, 5), elements=st.floats(0.0, 1.0).map(lambda x: round(x, 2))),
    st.permutations(range(4)),
)
def test_max_min_shares(use: np.ndarray, order: list[int]) -> None:
    use = use / np.maximum(use.max(axis=1, keepdims=True), 1e-9)
    kept, at = shares(use)
    load = kept @ use
    assert (load <= 1.0 + 1e-9).all()
    for group, link in enumerate(at):
        if link < 0:
            assert kept[group] == 1.0
        else:  # the certificate: a full link on which nobody keeps more
            assert load[link] == pytest.approx(1.0)
            assert kept[group] >= kept[use[:, link] > 0].max() - 1e-9
    np.testing.assert_allclose(shares(use[order])[0], kept[order], atol=1e-12)


@pytest.mark.parametrize(
    ("system", "nodes", "tp"),
    [("dgx-1v", 2, 8), ("a100-pcie-node", 2, 8), ("dgx-a100", 2, 8), ("dgx-h100", 4, 4)],
)
def test_data_parallel_rings_share_interfaces_as_the_closed_form_says(
    system: str, nodes: int, tp: int
) -> None:
    found = SYSTEMS[system]
    dp = nodes * 8 // tp
    layout = axis_layout(found, nodes, {"tp": tp, "dp": dp})
    size, stride, world = (np.array([x]) for x in (dp, tp, nodes * 8))
    shared = inter_bandwidth(found, groups(found, size=size, stride=stride, world=world))
    alone = inter_bandwidth(found, layout.alone)
    kept, _ = contention(layout, "all_reduce").worst
    assert kept == pytest.approx(float(shared[0] / alone[0]))


def test_eight_rings_through_one_interface() -> None:
    layout = axis_layout(SYSTEMS["a100-pcie-node"], 2, {"tp": 8, "dp": 2})
    (row,) = together(sweep(layout, ["all_reduce"], [64 * GIB])).rows
    assert row.slowdown == pytest.approx(8.0, rel=1e-3)
    assert row.shared is not None
    assert (row.shared.name, row.shared.groups) == ("nic:0.0 -> leaf:0", 8)


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_switch_has_room_for_groups_of_different_devices(kind: Collective) -> None:
    layout = spread_layout(SYSTEMS["dgx-a100"], 1, 2, at_once=4)
    assert contention(layout, kind).worst == (1.0, None)


def test_host_bridges_are_shared() -> None:
    layout = axis_layout(SYSTEMS["a100-pcie-node"], 1, {"tp": 2, "dp": 4})
    kept, shared = contention(layout, "all_reduce").worst
    assert kept == 0.5
    assert shared is not None
    assert shared.name == "pcie:0.0 -> host:0.0"


@pytest.mark.parametrize("at_once", [2, 4])
def test_processors_that_share_cores_take_turns(at_once: int) -> None:
    layout = spread_layout(SYSTEMS["cpu"], 1, 2, at_once)
    found = together(sweep(layout, ["all_reduce"], [8, 1 << 26]))
    assert [row.slowdown for row in found.rows] == pytest.approx([at_once, at_once])


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_one_group_alone_loses_nothing(kind: Collective) -> None:
    for name, nodes in (("dgx-h100", 3), ("dgx-1v", 1), ("a100-pcie-node", 2), ("cpu", 1)):
        layout = spread_layout(SYSTEMS[name], nodes)
        assert contention(layout, kind).kept == (1.0,)


def test_which_group_is_first_does_not_matter() -> None:
    layout = axis_layout(SYSTEMS["dgx-1v"], 2, {"tp": 8, "dp": 2})
    turned = Layout(cluster=layout.cluster, groups=layout.groups[::-1])
    assert contention(turned, "all_gather").kept == contention(layout, "all_gather").kept[::-1]


def test_small_messages_keep_their_latency() -> None:
    layout = axis_layout(SYSTEMS["a100-pcie-node"], 2, {"tp": 8, "dp": 2})
    (row,) = together(sweep(layout, ["all_reduce"], [8])).rows
    assert row.slowdown < 1.01
