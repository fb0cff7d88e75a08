"""What groups of devices reach over direct cables: rings laid by hand, and ways round."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Cable
from parsim.cluster.reader import load_catalog
from parsim.cluster.topology.mesh import group_rates, has_ring, node_mesh, pair_rate, ring_rate

LINK = 25e9 * 0.917
"""One NVLink of a V100 as NCCL reaches it."""
DGX1 = node_mesh(load_catalog().system("dgx-1v"))


def lanes(*members: int) -> float:
    return group_rates(DGX1, members).ring / LINK


def test_a_group_of_a_dgx1_has_the_cables_among_its_members() -> None:
    assert [lanes(0, 1), lanes(0, 3), lanes(0, 4)] == pytest.approx([1, 2, 2])
    # rings 0-1-2-3 and 0-2-1-3, both ways each: 0 has four links to the other three
    assert lanes(0, 1, 2, 3) == pytest.approx(4)
    # only 0-2-6-4 and back, as wide as its narrowest cable
    assert lanes(0, 2, 4, 6) == pytest.approx(2)
    # 4 and 5 have three links there, and every ring takes the single one between them
    assert lanes(0, 1, 2, 3, 4, 5) == pytest.approx(2)
    assert lanes(*range(8)) == pytest.approx(6)


def test_eight_p100_have_four_links_each() -> None:
    """One link a pair, and two rings through all of them, both ways each."""
    cables = node_mesh(load_catalog().system("big-basin"))
    link = 20e9 * 0.917
    assert group_rates(cables, (0, 1)).ring == pytest.approx(link)
    assert group_rates(cables, (0, 1, 2, 3)).ring == pytest.approx(3 * link)
    assert group_rates(cables, tuple(range(8))).ring == pytest.approx(4 * link)


@pytest.mark.parametrize("size", [2, 3, 4, 8])
def test_a_full_mesh_has_a_link_to_each_other_member(size: int) -> None:
    node = load_catalog().system("mi300x-node")
    rates = group_rates(node_mesh(node), tuple(range(size)))
    link = 64e9 * node.intra.efficiency
    # rings share all cables evenly, and an all-to-all has one of them for each pair
    assert (rates.ring, rates.pairs) == pytest.approx(((size - 1) * link, (size - 1) * link))
    part = node.of_devices(size)
    assert part.intra.bandwidth == pytest.approx((size - 1) * 64e9)
    assert group_rates(node_mesh(part), tuple(range(size))) == pytest.approx(rates)


def test_rings_of_a_frontier_node_use_four_links() -> None:
    cables = node_mesh(load_catalog().system("mi250x-node"))
    link = 50e9 * 0.72
    assert group_rates(cables, tuple(range(8))).ring == pytest.approx(4 * link)
    assert group_rates(cables, (0, 1)).ring == pytest.approx(4 * link)
    assert group_rates(cables, (0, 4)).ring == pytest.approx(2 * link)


def test_no_cable_means_the_hosts() -> None:
    assert not has_ring(DGX1, (0, 5))
    assert group_rates(DGX1, (0, 5)).ring == 6e9  # between two Broadwell sockets
    assert pair_rate(DGX1, 0, 5) == 6e9
    # NCCL passes one device of the same communicator: 3-0 and 0-4 are two cables each
    assert pair_rate(DGX1, 3, 4, tuple(range(8))) == pytest.approx(2 * LINK)


def test_pairs_of_an_all_to_all_share_cables() -> None:
    """In a quad the single cable decides; of all eight, 3 of 7 peers are two links away."""
    assert group_rates(DGX1, (0, 1, 2, 3)).pairs == pytest.approx(3 * LINK)
    everybody = group_rates(DGX1, tuple(range(8))).pairs
    assert everybody <= 7 / 10 * 6 * LINK
    assert everybody == pytest.approx(7 / 3 * LINK)  # single cables carry 3 pairs each


def ring_of(size: int) -> tuple[Cable, ...]:
    pairs = [(rank, (rank + 1) % size) for rank in range(size)]
    return tuple(Cable(f"gpu:{a}", f"gpu:{b}", "nvlink", 10e9) for a, b in pairs)


def test_devices_on_a_ring_of_cables() -> None:
    """All have two links; some of them go forth and back on one, for nothing else joins them."""
    cables = ring_of(6)
    assert group_rates(cables, tuple(range(6))).ring == 20e9
    assert group_rates(cables, (0, 1)).ring == 10e9
    assert group_rates(cables, (0, 1, 2)).ring == 10e9  # 2 to 0 by way of 1


def test_a_long_ring_of_cables() -> None:
    """Only neighbours, and those next to them, have NVLinks; the others go by way of many."""
    members = tuple(range(300))
    assert group_rates(ring_of(300), members).ring == 20e9
    assert pair_rate(ring_of(300), 0, 150, members) == 10e9


@given(st.integers(2, 6), st.data())
def test_rings_use_no_more_links_than_any_member_has(size: int, data: st.DataObject) -> None:
    members = tuple(range(size))
    links = {
        pair: float(width)
        for pair in combinations(members, 2)
        if (width := data.draw(st.integers(0, 3)))
    }
    rate = ring_rate(links, members)
    degrees = [sum(w for pair, w in links.items() if member in pair) for member in members]
    assert 0.0 <= rate <= min(degrees)
    if links and len(links) == size * (size - 1) // 2 and len(set(links.values())) == 1:
        assert rate == min(degrees)
