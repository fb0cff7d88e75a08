"""What groups that leave a leaf share of its up-links."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import groups, inter_bandwidth, one_group
from parsim.cost.collective.measured_curve import shape
from tests.parsim.cost.collective.on_systems import KINDS, system


@pytest.mark.parametrize(
    ("stride", "divisor"), [(8, 1.0), (16, 2.0), (32, 4.0), (64, 8.0), (128, 8.0)]
)
def test_rings_of_neighbouring_nodes_leave_a_leaf_once(stride: int, divisor: float) -> None:
    """Leaf groups of 8 nodes, oversubscribed 8 times: d rings d nodes apart share an up-link."""
    on = system("dgx-h100")
    assert on.network is not None
    thin = replace(on, network=replace(on.network, nodes_per_leaf=8, oversubscription=8.0))
    columns = [np.array([x]) for x in (16, stride, 16 * stride)]
    where = groups(thin, size=columns[0], stride=columns[1], world=columns[2])
    slower = inter_bandwidth(on, where)[0] / inter_bandwidth(thin, where)[0]
    assert slower == pytest.approx(divisor)


def test_an_all_to_all_pays_the_whole_spine() -> None:
    on = replace(system("dgx-h100"), curves=())
    assert on.network is not None
    thin = replace(on, network=replace(on.network, nodes_per_leaf=2, oversubscription=4.0))
    where = groups(thin, size=np.array([32]), stride=np.array([1]), world=np.array([32]))
    fast, slow = (shape(narrow, "all_to_all", where).bandwidth[0] for narrow in (on, thin))
    assert fast / slow == pytest.approx(4.0)


def test_gloo_reduces_a_copy_to_scatter_it() -> None:
    """And a reduce gathers what a ring has reduced; a broadcast sends S down a binomial tree."""
    on = replace(system("cpu"), devices_per_node=8)
    where = one_group(on, 8)
    single, two = (
        {kind: float(collective_time(on, kind, size, where)[0]) for kind in KINDS}
        for size in (1e6, 2e6)
    )
    slope = {kind: two[kind] - single[kind] for kind in KINDS}
    part = 7 / 8
    assert slope["reduce_scatter"] == pytest.approx(slope["all_reduce"])
    assert slope["reduce"] == pytest.approx(slope["all_reduce"])
    assert slope["broadcast"] / slope["all_reduce"] == pytest.approx(3 / (2 * part))
    assert slope["all_gather"] / slope["all_reduce"] == pytest.approx(0.5)


def test_messages_of_all_replicas_share_the_up_links() -> None:
    on = system("dgx-h100")
    plain, thin = (
        float(p2p_time(on, 1e9, crosses=True, sharing=1.0, spine=divisor)) for divisor in (1.0, 4.0)
    )
    alone = float(p2p_time(on, 1.0, crosses=True, sharing=1.0))
    assert (thin - alone) / (plain - alone) == pytest.approx(4.0, rel=1e-6)
