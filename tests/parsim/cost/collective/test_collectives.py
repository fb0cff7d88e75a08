from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Curve, System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.choice import choose
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import Groups, groups, inter_bandwidth, one_group
from parsim.cost.collective.kinds import Algorithm, CollectiveKind
from parsim.cost.collective.measured_curve import collective_spread, shape
from parsim.errors import PlanError
from parsim.units import GIB

SYSTEMS = (
    *("dgx-a100", "dgx-h100", "hgx-h200", "dgx-1v", "a100-pcie-node", "dgx-b200"),
    *("gb200-nvl72", "gcp-a3-high", "a100-nvlink-pairs"),
)
KINDS: tuple[CollectiveKind, ...] = (
    *("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all"),
)


def system(name: str) -> System:
    return load_catalog().system(name)


def group(name: str, size: int, stride: int = 1, world: int | None = None) -> Groups:
    columns = [np.array([x]) for x in (size, stride, world or size * stride)]
    return groups(system(name), size=columns[0], stride=columns[1], world=columns[2])


def seconds(name: str, kind: CollectiveKind, size: float, ranks: int, stride: int = 1) -> float:
    return float(collective_time(system(name), kind, size, group(name, ranks, stride))[0])


def busbw(
    name: str, size: float, ranks: int, algorithm: Algorithm | None = None, **links: float
) -> float:
    """Bus bandwidth of an all-reduce by links and constants, as nccl-tests prints it, GB/s."""
    on = replace(system(name), curves=(), call_overhead=0.0, call_overhead_per_rank=0.0)
    if "link" in links:
        on = replace(on, intra=replace(on.intra, bandwidth=links["link"]))
    if "nics" in links:
        assert on.network is not None
        on = replace(on, network=replace(on.network, nics_per_node=int(links["nics"])))
    choice = choose(on, "all_reduce", size, one_group(on, ranks), algorithm=algorithm)
    return 2 * (ranks - 1) / ranks * size / choice.seconds / 1e9


@pytest.mark.parametrize(
    ("name", "ranks", "size", "measured", "source"),
    [
        ("dgx-a100", 8, 4e9, 232.5, "NVIDIA/nccl issue 1048"),
        ("dgx-a100", 16, 4e9, 192.0, "nccl issue 812: two nodes of 8 HDR"),
        ("dgx-h100", 4, 4e9, 370.0, "nccl issue 1455"),
        ("dgx-h100", 5, 4e9, 420.0, "nccl issue 1455: NVLS"),
        ("dgx-h100", 6, 4e9, 440.0, "nccl issue 1455: NVLS"),
        ("dgx-h100", 7, 4e9, 460.0, "nccl issue 1455: NVLS"),
        ("dgx-h100", 8, 4e9, 480.0, "nccl issue 1455, nccl-tests issue 212: NVLS"),
        ("dgx-h100", 16, 4e9, 470.0, "nccl-tests issue 309: NVLS-tree"),
        ("dgx-h100", 32, 4e9, 366.0, "nccl-tests issue 309"),
        ("hgx-h200", 8, 4e9, 475.0, "nccl-tests issue 272"),
        ("dgx-b200", 4, 8 * GIB, 673.2, "ml-engineering: ring"),
        ("dgx-b200", 5, 8 * GIB, 677.8, "ml-engineering: ring"),
        ("dgx-b200", 6, 8 * GIB, 778.2, "ml-engineering: NVLS"),
        ("dgx-b200", 7, 8 * GIB, 811.2, "ml-engineering: NVLS"),
        ("dgx-b200", 8, 8 * GIB, 838.0, "ml-engineering: NVLS"),
        ("gcp-a4", 16, 8 * GIB, 683.5, "dstack: two nodes of 8 x 400 Gb/s"),
        ("aws-p6-b200", 32, 16 * GIB, 381.8, "ml-engineering: four nodes of 8 x 400 Gb/s"),
        ("gb200-nvl72", 8, 4e9, 811.0, "lixueduan.com, GB200 MNNVL, two trays"),
        ("gb200-nvl72", 8, GIB / 16, 442.6, "OCI: two trays"),
        ("gb200-nvl72", 72, 4 * GIB, 839.2, "coreweave nccl-tests"),
        ("gb200-nvl72", 72, GIB / 2, 586.1, "coreweave nccl-tests"),
        ("azure-nc24s-v3", 2, GIB, 6.88, "marconetto/azadventures: half of that machine"),
    ],
)
def test_large_all_reduces_follow_from_the_links(
    name: str, ranks: int, size: float, measured: float, source: str
) -> None:
    assert busbw(name, size, ranks) == pytest.approx(measured, rel=0.1), source


@pytest.mark.parametrize("ranks", range(2, 9))
def test_a_ring_of_h100s_is_as_fast_for_any_rank_count(ranks: int) -> None:
    assert busbw("dgx-h100", 4e9, ranks, "ring") == pytest.approx(367.5, rel=0.05)


def test_links_that_a_system_has_fewer_of() -> None:
    """H800 (nccl issue 1374) and DGX A100 with four interfaces (nccl issue 1048)."""
    assert busbw("dgx-h100", 4e9, 8, link=200e9) == pytest.approx(215.0, rel=0.1)
    assert busbw("dgx-a100", 4e9, 16, nics=4) == pytest.approx(91.0, rel=0.1)


sizes = st.floats(min_value=1.0, max_value=1e11)
names = st.sampled_from(SYSTEMS)
kinds = st.sampled_from(KINDS)
ranks_in_a_group = st.integers(min_value=2, max_value=64)


@given(name=names, kind=kinds, size=sizes, ranks=ranks_in_a_group)
def test_never_faster_than_the_links(
    name: str, kind: CollectiveKind, size: float, ranks: int
) -> None:
    """Each rank sends its share of the bytes over its links, with NVLS (n + 1)/n of them."""
    on = system(name)
    part = (ranks - 1) / ranks
    share = {"all_reduce": 2 * part, "broadcast": 1.0, "reduce": 1.0}.get(kind, part)
    if kind == "all_reduce" and on.intra.nvls:
        share = min(share, (ranks + 1) / ranks)
    if group(name, ranks).nodes[0] == 1:
        assert seconds(name, kind, size, ranks) >= share * size / on.intra.bandwidth * (1 - 1e-12)


@given(
    name=st.sampled_from(("dgx-a100", "dgx-h100", "gcp-a4", "aws-p6-b200", "gcp-a3-high")),
    kind=st.sampled_from(KINDS[:3]),
    size=sizes,
    nodes=st.integers(2, 8),
)
def test_never_faster_than_the_interfaces(
    name: str, kind: CollectiveKind, size: float, nodes: int
) -> None:
    """With whole nodes in the group, (N-1)/N of the bytes leave each node at the least."""
    on = system(name)
    assert on.network is not None
    ranks = nodes * on.devices_per_node
    rounds = 2 if kind == "all_reduce" else 1
    least = rounds * (nodes - 1) / nodes * size / on.network.node_bandwidth
    assert seconds(name, kind, size, ranks) >= least * (1 - 1e-12)


@given(
    name=names,
    kind=kinds,
    size=sizes,
    ranks=ranks_in_a_group,
    wider=st.floats(1.0, 4.0),
    faster=st.floats(1.0, 4.0),
    stride=st.sampled_from([1, 8]),
)
def test_more_bandwidth_is_never_slower(
    name: str,
    kind: CollectiveKind,
    size: float,
    ranks: int,
    wider: float,
    faster: float,
    stride: int,
) -> None:
    on = system(name)
    assert on.network is not None
    better = replace(
        on,
        intra=replace(on.intra, bandwidth=wider * on.intra.bandwidth),
        network=replace(on.network, nic_bandwidth=faster * on.network.nic_bandwidth),
    )
    where = group(name, ranks, stride)
    slow, fast = (collective_time(before, kind, size, where)[0] for before in (on, better))
    assert fast <= slow * (1 + 1e-12)


@given(name=names, kind=kinds, size=sizes, more=st.floats(1.0, 100.0), ranks=ranks_in_a_group)
def test_more_bytes_take_no_less_time(
    name: str, kind: CollectiveKind, size: float, more: float, ranks: int
) -> None:
    assert seconds(name, kind, size * more, ranks) >= seconds(name, kind, size, ranks)


@given(size=sizes, ranks=st.sampled_from([2, 4, 8]))
def test_all_reduce_costs_at_least_one_of_its_halves(size: float, ranks: int) -> None:
    both = seconds("dgx-a100", "all_reduce", size, ranks)
    assert both >= seconds("dgx-a100", "reduce_scatter", size, ranks) * (1 - 1e-12)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_or_no_bytes_cost_nothing(name: str, kind: CollectiveKind) -> None:
    assert seconds(name, kind, 1e9, 1) == 0.0
    assert seconds(name, kind, 0.0, 8) == 0.0


@given(name=names, kind=kinds, size=sizes, blocks=st.integers(1, 5))
def test_which_ranks_a_group_has_does_not_matter(
    name: str, kind: CollectiveKind, size: float, blocks: int
) -> None:
    """Whole nodes and whole rails take the same time wherever they lie in the world."""
    on = system(name)
    for ranks, stride in ((on.devices_per_node, 1), (2, on.devices_per_node)):
        alone = group(name, ranks, stride)
        among = group(name, ranks, stride, blocks * ranks * stride)
        spans = among.leaves[0]
        if not spans:
            first, other = (collective_time(on, kind, size, where)[0] for where in (alone, among))
            assert first == other


def test_leaving_the_node_is_slower() -> None:
    for kind in KINDS:
        assert seconds("dgx-a100", kind, 1e9, 2, 8) > seconds("dgx-a100", kind, 1e9, 2, 1)


def test_groups_that_share_interfaces_slow_each_other_down() -> None:
    # 8 groups of two nodes share 8 interfaces, one each; two groups of 8 ranks have four each
    one_each = seconds("dgx-a100", "all_gather", 1e9, 2, 8)
    four_each = seconds("dgx-a100", "all_gather", 1e9, 8, 2)
    assert one_each >= 0.5e9 / 25e9  # (n - 1)/n of 1 GB over one interface of 200 Gb/s
    assert 0.875e9 / 100e9 <= four_each < one_each


@given(size=sizes, more=st.floats(1.0, 100.0), crosses=st.booleans())
def test_messages_take_longer_with_size_and_with_sharing(
    size: float, more: float, crosses: bool
) -> None:
    on = system("dgx-a100")

    def sent(amount: float, sharing: float) -> float:
        return float(p2p_time(on, amount, crosses=crosses, sharing=sharing))

    assert sent(size * more, 1) >= sent(size, 1)
    assert sent(size, 8 * more) >= sent(size, 8)
    assert on.network is not None
    rate = on.network.nic_bandwidth if crosses else on.intra.bandwidth
    assert sent(size, 1) >= size / rate


def test_a_batch_is_its_plans_one_by_one() -> None:
    rng = np.random.default_rng(0)
    ranks, sent = rng.choice([1, 2, 4, 8, 16, 64], 50), rng.uniform(1, 1e9, 50)
    ones = np.ones(50, dtype=np.int64)
    where = groups(system("dgx-a100"), size=ranks, stride=ones, world=64 * ones)
    together = collective_time(system("dgx-a100"), "all_reduce", sent, where)
    for i in range(50):
        where_alone = group("dgx-a100", int(ranks[i]), 1, 64)
        assert (
            together[i]
            == collective_time(system("dgx-a100"), "all_reduce", sent[i], where_alone)[0]
        )


def test_a_switch_that_reduces_between_nodes() -> None:
    """SHARP on DGX A100: about 110 GB/s of S, where a ring has 100 (nccl issue 320)."""
    on = system("dgx-a100")
    assert on.network is not None
    sharp = replace(on, curves=(), network=replace(on.network, sharp=True))
    where = group("dgx-a100", 32)
    choice = choose(sharp, "all_reduce", 4e9, where, algorithm="collnet")
    assert 4.0 / choice.seconds == pytest.approx(110.0, rel=0.1)
    with pytest.raises(PlanError, match=r"collnet cannot do all_reduce .*allowed: ring"):
        choose(on, "all_reduce", 4e9, where, algorithm="collnet")


def test_an_exchange_of_all_with_all_is_bound_by_the_interfaces() -> None:
    """Half of what each of 16 ranks sends leaves a node of 8 interfaces of 25 GB/s."""
    took = seconds("dgx-a100", "all_to_all", 1e9, 16)
    assert took == pytest.approx(8 * 0.5e9 / (0.96 * 200e9), rel=0.05)
    inside = seconds("dgx-a100", "all_to_all", 1e9, 8)
    assert 0.875e9 / 300e9 < inside < took


def test_gloo_takes_what_was_measured_of_it() -> None:
    """Two ranks of one machine: 117 us for 4 bytes, 2.0 to 2.2 GB/s of 16 and 64 MiB."""
    assert seconds("cpu", "all_reduce", 4.0, 2) == pytest.approx(117e-6, rel=0.01)
    for size in (16 * 2.0**20, 64 * 2.0**20):
        assert size / seconds("cpu", "all_reduce", size, 2) / 1e9 == pytest.approx(2.1, rel=0.05)
    took = choose(system("cpu"), "all_reduce", 1e6, group("cpu", 2))
    assert (took.library, took.algorithm) == ("gloo", "ring")
    with pytest.raises(PlanError, match="nvls cannot do all_reduce for this group on cpu"):
        choose(system("cpu"), "all_reduce", 1e6, group("cpu", 2), algorithm="nvls")


def test_a_forced_algorithm_is_no_faster_than_the_best() -> None:
    for name, ranks in (("dgx-h100", 8), ("dgx-h100", 16), ("dgx-a100", 16), ("dgx-b200", 8)):
        where = group(name, ranks)
        free = choose(system(name), "all_reduce", 1e9, where).seconds
        algorithms: tuple[Algorithm, ...] = ("ring", "tree")
        for algorithm in algorithms:
            forced = choose(system(name), "all_reduce", 1e9, where, algorithm=algorithm)
            assert forced.algorithm == algorithm
            assert forced.seconds >= free * (1 - 1e-12)
        slow = choose(system(name), "all_reduce", 1e9, where, algorithm="ring", protocol="LL")
        fast = choose(system(name), "all_reduce", 1e9, where, algorithm="ring", protocol="Simple")
        assert slow.protocol == "LL"
        assert slow.seconds > 1.5 * fast.seconds


@given(name=names, size=sizes, ranks=st.sampled_from([2, 4, 8, 16]))
def test_a_number_is_no_surer_without_its_measurement(name: str, size: float, ranks: int) -> None:
    on, where = system(name), group(name, ranks)
    known = collective_spread(on, "all_reduce", size, where)[0]
    unknown = collective_spread(replace(on, curves=()), "all_reduce", size, where)[0]
    assert 0.0 < known <= unknown
    smaller = collective_spread(on, "all_reduce", size / 64, where)[0]
    assert smaller >= known


def test_spread_by_what_a_number_rests_on() -> None:
    on, large = system("dgx-h100"), 64 * 2.0**20

    def spread(kind: CollectiveKind, ranks: int) -> float:
        return float(collective_spread(on, kind, large, group("dgx-h100", ranks))[0])

    assert spread("all_reduce", 8) < spread("all_gather", 8) < spread("all_gather", 16)


def test_a_calibration_is_sure_of_the_groups_that_it_measured() -> None:
    bare, large = replace(system("dgx-h100"), curves=()), 64 * 2.0**20
    pairs = replace(bare, residuals={"all_gather": ((1e6, 1.1),), "send_recv": ((1e6, 0.9),)})
    points = ((1e6, 2.0, 1.1), (1e6, 4.0, 1.1))
    mine = replace(bare, residuals={"all_gather": points})

    def sure(on: System, kind: CollectiveKind | Literal["send_recv"], ranks: int) -> bool:
        spread = (
            collective_spread(points, kind, large, group("dgx-h100", ranks))
            for points in (on, bare)
        )
        return bool(next(spread) < next(spread))

    assert [sure(pairs, "all_gather", n) for n in (2, 4, 8, 16)] == [True, False, False, False]
    assert [sure(mine, "all_gather", n) for n in (2, 4, 8, 16)] == [True, True, False, False]
    assert [sure(pairs, "send_recv", n) for n in (2, 8, 16)] == [True, True, False]


def test_what_was_measured_in_a_node_corrects_groups_of_that_size_in_a_node() -> None:
    bare = replace(system("dgx-h100"), curves=())
    mine = replace(bare, residuals={"all_reduce": ((1e6, 2.0, 2.0), (1e6, 8.0, 0.5))})

    def factor(ranks: int) -> float:
        where = group("dgx-h100", ranks)
        times = [float(collective_time(on, "all_reduce", 1e6, where)[0]) for on in (mine, bare)]
        return times[0] / times[1]

    assert factor(2) == pytest.approx(2.0, rel=1e-3)
    assert factor(8) == pytest.approx(0.5, rel=1e-3)
    assert 0.5 < factor(4) < 2.0
    assert factor(16) == 1.0  # two nodes, which nobody measured


def test_gloo_takes_a_measured_curve_and_the_nearest_one() -> None:
    on = replace(system("cpu"), devices_per_node=8)

    def curve(ranks: int, latency: float, rate: float) -> Curve:
        return Curve(
            collective="all_reduce",
            ranks=ranks,
            nodes=1,
            latency=latency,
            bandwidth=rate,
            ramp=1e-4,
            link=on.intra.bandwidth,
            node_bandwidth=None,
            least=4096.0,
            most=1e8,
            source="a test",
        )

    curves = (curve(2, 1e-4, 2e9), curve(4, 3e-4, 1e9))
    mine = replace(on, curves=curves)

    def took(ranks: int, size: float) -> float:
        seconds = collective_time(mine, "all_reduce", size, one_group(mine, ranks))[0]
        return float(seconds) - mine.call_overhead - (ranks - 1) * mine.call_overhead_per_rank

    for ranks, latency, rate in ((2, 1e-4, 2e9), (4, 3e-4, 1e9)):
        expected = latency + 2.0**20 / rate + 1e-4
        assert took(ranks, 2.0**20) == pytest.approx(expected, rel=1e-9)
    # a ring of 8 sends 7/8 where one of 4 sends 3/4; latency and ramp as of 4
    assert took(8, 2.0**30) == pytest.approx(3e-4 + 7 / 6 * 2.0**30 / 1e9 + 32e-4, rel=1e-9)
    plain = replace(on, curves=())
    where = one_group(on, 4)
    assert collective_time(mine, "all_gather", 1e6, where) == collective_time(
        plain, "all_gather", 1e6, where
    )


def test_only_ranks_of_a_node_are_waited_for_and_only_where_compute_waits() -> None:
    """256 ranks on 32 nodes are no later than 8 on one, and buckets in a row are not late at all.

    As much for each of 255 ranks in each of 200 buckets put 8B on 256 B200 at 4.7 times its step.
    """
    on = system("dgx-b200")
    bare = replace(on, call_overhead_per_rank=0.0)
    for ranks in (8, 256):
        where = one_group(on, ranks)
        late = [
            float(collective_time(on, "all_gather", 1e6, where, queued=queued)[0])
            - float(collective_time(bare, "all_gather", 1e6, where)[0])
            for queued in (False, True)
        ]
        assert late == pytest.approx([7 * on.call_overhead_per_rank, 0.0])


def test_steps_of_a_ring_take_longer_with_large_pieces() -> None:
    """Two slopes over the ranks: Polaris' 2,160 ranks take 17.0 ms for 64 KiB, 65 ms for 64 MiB.

    Of NCCL's LL128 and Simple steps here: 1.9 and 4, 3.4 and 14 us inside and between nodes.
    """
    on = replace(system("dgx-b200"), curves=())
    small, large = (
        [shape(on, "all_gather", one_group(on, n)).waiting(size * n)[0] for n in (256, 512)]
        for size in (0.0, 16 * 2.0**10)
    )
    assert small[1] - small[0] == pytest.approx((256 - 32) * 1.9e-6 + 32 * 4e-6)
    assert large[1] - large[0] == pytest.approx((256 - 32) * 3.4e-6 + 32 * 14e-6)


def test_small_all_reduces_grow_little_with_nodes() -> None:
    """1 KiB grows by 11 to 19 us a doubling of Polaris' nodes, 64 KiB by 40 to 60."""
    on = replace(system("dgx-h100"), curves=(), call_overhead=0.0)
    for size, least, most in ((2.0**10, 11e-6, 19e-6), (2.0**16, 40e-6, 60.1e-6)):
        times = [collective_time(on, "all_reduce", size, one_group(on, 8 * n)) for n in (2, 256)]
        assert least <= float(times[1][0] - times[0][0]) / 7 <= most


def test_a_slow_network_adds_its_latency_to_every_doubling() -> None:
    """Up and down a tree, twice each for the flush: 4 x 16 us more for 2 nodes, 8 x for 4."""
    on = replace(system("dgx-b200"), curves=())
    assert on.network is not None
    slow = replace(on, network=replace(on.network, latency=on.network.latency + 16e-6))
    for ranks, times in ((8, 0), (16, 4), (32, 8)):
        where = one_group(on, ranks)
        more = collective_time(slow, "all_reduce", 1e8, where) - collective_time(
            on, "all_reduce", 1e8, where
        )
        assert more[0] == pytest.approx(times * 16e-6, rel=1e-6, abs=1e-15)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_a_slow_network_adds_its_latency_to_every_node_of_a_ring(kind: CollectiveKind) -> None:
    on = replace(system("dgx-b200"), curves=())
    assert on.network is not None
    slow = replace(on, network=replace(on.network, latency=on.network.latency + 1e-3))
    where = one_group(on, 64 * 8)
    before, after = (float(collective_time(s, kind, 1e8, where)[0]) for s in (on, slow))
    assert after - before == pytest.approx(64 * 1e-3)


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-b200", "a100-pcie-node"])
@pytest.mark.parametrize(("kind", "steps"), [("all_reduce", 14), ("all_gather", 7)])
def test_slow_links_in_a_node_add_their_latency_to_every_step(
    name: str, kind: CollectiveKind, steps: int
) -> None:
    on = replace(system(name), curves=())
    slow = replace(on, intra=replace(on.intra, latency=on.intra.latency + 1e-4))
    before, after = (float(collective_time(s, kind, 1e8, one_group(on, 8))[0]) for s in (on, slow))
    assert after - before == pytest.approx(steps * 1e-4)


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "gcp-a4"])
def test_a_measured_collective_waits_for_slow_links_too(name: str) -> None:
    on = system(name)
    times = [
        float(
            collective_time(
                replace(on, intra=replace(on.intra, latency=latency)),
                "all_reduce",
                1e6,
                one_group(on, 8),
            )[0]
        )
        for latency in (0.0, 9e-7, on.intra.latency, 5e-6, 1e-3)
    ]
    assert all(after > before for before, after in pairwise(times))
    assert times[-1] > 14 * 0.9e-3


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
