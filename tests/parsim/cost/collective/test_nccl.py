from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.collective.choice import CollectiveChoice, choose
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.modelled import bandwidths
from parsim.cost.collective.nccl import Call, estimates, table, tables
from parsim.errors import CatalogError, PlanError
from parsim.units import MIB

CALL = Call(
    kind="all_reduce",
    size=1e6,
    ranks=8.0,
    per_node=8.0,
    nodes=1.0,
    link="nvlink",
    generation="ampere",
    total=240e9,
    out=float("inf"),
    nvls=False,
    sharp=False,
)


def chosen(
    name: str, ranks: int, size: float, kind: CollectiveKind = "all_reduce", stride: int = 1
) -> CollectiveChoice:
    on = load_catalog().system(name)
    return choose(on, kind, size, one_group(on, ranks, stride))


def test_latencies_are_the_tables() -> None:
    """Empty messages of 8 A100: base + 14 hops of a ring or a tree, us."""
    latency = estimates("nccl-2.23", replace(CALL, size=0.0))
    assert latency["ring", "LL"] == pytest.approx((6.6 + 14 * 0.6) * 1e-6)
    assert latency["ring", "Simple"] == pytest.approx((8.4 + 14 * 3.4) * 1e-6)
    assert latency["tree", "LL128"] == pytest.approx((14.0 + 14 * 1.25) * 1e-6)


def test_bandwidths_are_the_tables() -> None:
    """Large messages: a ring n / (2 (n - 1)) of 240 GB/s, a tree half of 0.92 of it."""
    size = 1e12
    bandwidth = estimates("nccl-2.23", replace(CALL, size=size))
    assert size / bandwidth["ring", "Simple"] == pytest.approx(240e9 * 8 / 14, rel=1e-3)
    assert size / bandwidth["tree", "Simple"] == pytest.approx(240e9 * 0.92 / 2, rel=1e-3)
    assert size / bandwidth["ring", "LL"] == pytest.approx(87.7e9 * 8 / 14, rel=1e-3)


def test_switches_that_reduce_have_the_tables_rates() -> None:
    """8 H100: 0.85 of 360 GB/s on 17 of 18 channels, twice, n / (2 (n - 1)); 25 us, no base."""
    call = replace(CALL, generation="hopper", total=360e9, nvls=True, sharp=True, size=1e12)
    several = replace(call, ranks=16.0, nodes=2.0)
    reduced = 360e9 * 0.85 * 17 / 18 * 2
    for joined, algorithm, latency, rate in (
        (call, "nvls", 25.0, reduced * 8 / 14),
        (replace(several, out=500e9), "nvls_tree", 25.0 + 2 * 20.9, reduced / 2),
        (replace(several, out=100e9), "nvls_tree", 25.0 + 2 * 20.9, 100e9),
        (replace(several, ranks=32.0, nodes=4.0, out=100e9), "nvls_tree", 25.0 + 4 * 20.9, 50e9),
        (replace(several, out=500e9), "collnet", 2 * (3.7 + 0.4 * 7) + 31.0, 360e9 * 8 / 14),
        (replace(several, out=100e9), "collnet", 2 * (3.7 + 0.4 * 7) + 31.0, 100e9),
    ):
        seconds = estimates("nccl-2.23", joined)[algorithm, "Simple"]
        assert seconds == pytest.approx(latency * 1e-6 + 1e12 / rate, rel=1e-9)


def test_two_nodes_join_trees_at_the_links_speed() -> None:
    """So the bus bandwidth of two nodes exceeds their interfaces, of more nodes it does not."""
    two = replace(CALL, size=1e12, ranks=16.0, nodes=2.0, out=100e9)
    four = replace(two, ranks=32.0, nodes=4.0)
    taken = [1e12 / estimates("nccl-2.23", joined)["tree", "Simple"] for joined in (two, four)]
    assert taken[0] > 100e9 > taken[1]


@pytest.mark.parametrize(
    ("name", "ranks", "size", "kind", "stride", "algorithm", "protocol"),
    [
        ("dgx-a100", 8, 1024, "all_reduce", 1, "ring", "LL"),
        ("dgx-a100", 8, 1024 * MIB, "all_reduce", 1, "ring", "Simple"),
        ("dgx-a100", 16, 8192, "all_reduce", 1, "tree", "LL"),
        ("dgx-h100", 4, 8192 * MIB, "all_reduce", 1, "ring", "Simple"),
        ("dgx-h100", 5, 8192 * MIB, "all_reduce", 1, "nvls", "Simple"),
        ("dgx-b200", 5, 8192 * MIB, "all_reduce", 1, "ring", "Simple"),
        ("dgx-b200", 6, 8192 * MIB, "all_reduce", 1, "nvls", "Simple"),
        ("dgx-h100", 16, 8192 * MIB, "all_reduce", 1, "nvls_tree", "Simple"),
        ("dgx-h100", 8, 8192 * MIB, "all_gather", 1, "ring", "Simple"),
        ("dgx-h100", 64, 4096, "all_gather", 8, "ring", "LL"),
        ("dgx-h100", 1024, 64 * MIB, "all_gather", 8, "pat", "Simple"),
        ("dgx-h100", 8, 8192 * MIB, "all_to_all", 1, "p2p", "Simple"),
    ],
)
def test_what_nccl_takes(
    name: str,
    ranks: int,
    size: float,
    kind: CollectiveKind,
    stride: int,
    algorithm: str,
    protocol: str,
) -> None:
    choice = chosen(name, ranks, size, kind, stride)
    assert (choice.algorithm, choice.protocol, choice.library) == (algorithm, protocol, "nccl-2.23")
    assert choice.seconds > 0


def test_releases_weigh_trees_differently() -> None:
    """A tree's Simple hop over NVLink was 28 us from 2.19.1 to 2.22.3 (nccl issue 1334)."""
    old, new = (estimates(v, CALL)["tree", "Simple"] for v in ("nccl-2.19", "nccl-2.23"))
    assert old - new == pytest.approx(2 * 7 * 24e-6)
    assert estimates("nccl-2.18", CALL) == estimates("nccl-2.23", CALL)
    assert all(known["source"] for known in tables().values())


def test_the_other_way_of_gathering_came_with_a_release() -> None:
    call = replace(CALL, kind="all_gather", per_node=1.0, nodes=8.0, out=25e9)
    assert ("pat", "Simple") in estimates("nccl-2.23", call)
    assert ("pat", "Simple") not in estimates("nccl-2.19", call)


def test_what_a_release_or_an_algorithm_lacks() -> None:
    old = replace(load_catalog().system("dgx-h100"), library="nccl-2.19")
    with pytest.raises(PlanError, match=r"pat cannot do all_gather .*allowed: ring"):
        choose(old, "all_gather", 1e6, one_group(old, 16, 8), algorithm="pat")
    with pytest.raises(PlanError, match="nvls has no protocol LL; allowed: Simple"):
        choose(old, "all_reduce", 1e6, one_group(old, 8), algorithm="nvls", protocol="LL")


def test_a_release_without_a_table() -> None:
    with pytest.raises(CatalogError, match=r"library 'nccl-3' has no table .*allowed: nccl-2.23"):
        table("nccl-3")


def test_name_and_time_are_of_one_algorithm() -> None:
    """NCCL's tables rank a tree of two lone ranks first; the ring's time bears the ring's name."""
    for name, ranks, stride in (("dgx-h100", 2, 8), ("dgx-a100", 16, 1), ("dgx-1v", 2, 1)):
        on = load_catalog().system(name)
        where = one_group(on, ranks, stride)
        for size in (8192.0, 2.0**20, 2.0**30):
            free = choose(on, "all_reduce", size, where)
            forced = choose(on, "all_reduce", size, where, algorithm=free.algorithm)
            assert forced.seconds == pytest.approx(free.seconds, rel=0.05)


def test_a_tree_of_two_lone_ranks_sends_each_byte_once() -> None:
    """Each is the root of one tree and the leaf of the other: S / 2 down, S / 2 up, as a ring."""
    on = load_catalog().system("dgx-h100")
    two, sixteen = one_group(on, 2, 8), one_group(on, 16)
    rates = {name: rate[0] for name, rate in bandwidths(on, "all_reduce", two).items()}
    assert rates["tree"] == pytest.approx(0.92 * rates["ring"])
    seconds = choose(on, "all_reduce", 2.0**30, two, algorithm="tree").seconds
    assert seconds == pytest.approx(24.5e-3, rel=0.01)
    rates = {name: rate[0] for name, rate in bandwidths(on, "all_reduce", sixteen).items()}
    assert rates["tree"] == pytest.approx(0.92 / 2 * 15 / 8 * rates["ring"])
