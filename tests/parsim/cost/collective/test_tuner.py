"""What AWS's plugin chooses by its maps, and what the chosen algorithm costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.choice import choose
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import Algorithm
from parsim.cost.collective.modelled import bandwidths
from parsim.cost.collective.nccl import Protocol
from parsim.cost.collective.tuner import Area, algorithm_seconds, areas, chosen
from parsim.units import GIB, MIB


def bare(name: str) -> System:
    system = load_catalog().system(name)
    return replace(system, curves=(), call_overhead=0.0, call_overhead_per_rank=0.0)


@pytest.mark.parametrize(
    ("name", "ranks", "size", "algorithm", "protocol"),
    [
        ("aws-p6-b200", 32, 64 * 2**10, "tree", "LL"),
        ("aws-p6-b200", 32, 16 * MIB, "tree", "LL128"),
        ("aws-p6-b200", 32, 64 * MIB, "ring", "LL128"),
        ("aws-p6-b200", 32, 128 * MIB, "nvls_tree", "Simple"),
        ("aws-p6-b200", 32, 256 * MIB, "nvls_tree", "Simple"),
        ("aws-p6-b200", 32, 512 * MIB, "ring", "Simple"),
        ("aws-p5", 32, GIB, "ring", "LL128"),
        ("aws-p5", 32, 2 * GIB, "ring", "Simple"),
        ("aws-p5", 128, 256 * MIB, "tree", "LL128"),
        ("aws-p5", 128, 4 * GIB, "nvls_tree", "Simple"),
        ("aws-p5en", 32, 64 * MIB, "ring", "LL128"),
        ("aws-p5en", 2**14, 64 * MIB, "tree", "LL128"),
    ],
)
def test_the_plugin_chooses_by_its_map(
    name: str, ranks: int, size: int, algorithm: Algorithm, protocol: Protocol
) -> None:
    system = bare(name)
    taken = choose(system, "all_reduce", size, one_group(system, ranks))
    assert (taken.algorithm, taken.protocol) == (algorithm, protocol)
    forced = algorithm_seconds(
        system, "all_reduce", np.array([float(size)]), one_group(system, ranks), algorithm, protocol
    )
    assert taken.seconds == pytest.approx(float(forced[0]), rel=1e-12)


@pytest.mark.parametrize(
    ("name", "ranks", "size"),
    [
        ("aws-p6-b200", 16, 128.0 * MIB),  # two nodes
        ("aws-p6-b200", 8, 128.0 * MIB),
        ("aws-p6-b200", 32, 200.0 * GIB),  # beyond the map
        ("dgx-b200", 32, 128.0 * MIB),  # no plugin
    ],
)
def test_elsewhere_nccl_chooses(name: str, ranks: int, size: float) -> None:
    system = bare(name)
    where = one_group(system, ranks)
    assert chosen(system, "all_reduce", np.array([size]), where)[0] == -1
    plain = collective_time(replace(system, tuner=None), "all_reduce", size, where)
    assert collective_time(system, "all_reduce", size, where)[0] == plain[0]


def test_other_collectives_and_parts_of_nodes_are_left_to_nccl() -> None:
    system = bare("aws-p6-b200")
    assert areas("aws-p6-b200", "all_gather") == ()
    one_a_node = one_group(system, 4, stride=8)
    assert chosen(system, "all_reduce", np.array([128.0 * MIB]), one_a_node)[0] == -1


def test_a_measured_curve_of_the_very_group_comes_first() -> None:
    system = load_catalog().system("aws-p6-b200")
    where = one_group(system, 32)
    assert chosen(system, "all_reduce", np.array([128.0 * MIB]), where)[0] == -1
    assert chosen(system, "all_reduce", np.array([128.0 * MIB]), one_group(system, 64))[0] >= 0


def test_a_polygon_holds_its_inside_and_its_edges() -> None:
    square = Area("ring", "LL", (0.0, 2.0, 2.0, 0.0), (0.0, 0.0, 2.0, 2.0))
    x = np.array([1.0, 0.0, 2.0, 1.0, 2.1, -0.1, 1.0])
    y = np.array([1.0, 1.0, 2.0, 0.0, 1.0, 1.0, 2.1])
    assert square.holds(x, y).tolist() == [True] * 4 + [False] * 3


@given(
    ranks=st.sampled_from([24, 32, 64, 128, 256, 512, 1024]),
    size=st.floats(1.0, 90.0 * GIB),
    name=st.sampled_from(["aws-p5", "aws-p5en", "aws-p6-b200"]),
)
def test_every_call_is_within_links_and_hops(ranks: int, size: float, name: str) -> None:
    """Never below S over the chosen bandwidth, and slower over a slower network."""
    system = bare(name)
    where = one_group(system, ranks)
    seconds = collective_time(system, "all_reduce", size, where)[0]
    taken = choose(system, "all_reduce", size, where)
    rate = float(bandwidths(system, "all_reduce", where)[taken.algorithm][0])
    index = int(chosen(system, "all_reduce", np.array([size]), where)[0])
    if index < 0:
        return
    assert seconds >= size / rate
    network = system.network
    assert network is not None
    slow = replace(system, network=replace(network, latency=2.0 * network.latency))
    assert collective_time(slow, "all_reduce", size, where)[0] >= seconds


@given(
    hops=st.integers(2, 20),
    latency=st.floats(1e-6, 5e-5),
    sending=st.floats(1e-4, 0.1),
)
def test_a_tree_takes_the_best_number_of_chunks(hops: int, latency: float, sending: float) -> None:
    chunks = np.arange(1, 5000)
    best = float(np.min((chunks + hops) * (sending / chunks + latency)))
    closed = float((np.sqrt(sending) + np.sqrt(hops * latency)) ** 2)
    assert closed <= best * (1 + 1e-12)
    assert closed == pytest.approx(best, rel=0.3)


def test_the_tree_over_efa_is_slower_than_links_allow() -> None:
    """128 MiB on 32 B200: 198 GB/s are measured, 228 would be the best algorithm's."""
    system = bare("aws-p6-b200")
    where = one_group(system, 32)
    taken = collective_time(system, "all_reduce", 128.0 * MIB, where)[0]
    best = collective_time(replace(system, tuner=None), "all_reduce", 128.0 * MIB, where)[0]
    assert taken > 1.1 * best
