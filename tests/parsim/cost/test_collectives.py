from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collectives import Groups, Kind, collective_time, groups, p2p_time

SYSTEMS = ("dgx-a100", "dgx-h100", "dgx-1v", "a100-pcie-node", "dgx-b200")
KINDS: tuple[Kind, ...] = ("all_reduce", "all_gather", "reduce_scatter")


def system(name: str) -> System:
    return load_catalog().system(name)


def group(name: str, size: int, stride: int = 1, world: int | None = None) -> Groups:
    columns = [np.array([x]) for x in (size, stride, world or size * stride)]
    return groups(system(name), size=columns[0], stride=columns[1], world=columns[2])


def seconds(name: str, kind: Kind, size: float, ranks: int, stride: int = 1) -> float:
    return float(collective_time(system(name), kind, size, group(name, ranks, stride))[0])


def busbw(name: str, size: float, ranks: int) -> float:
    """Bus bandwidth of an all-reduce as nccl-tests prints it, GB/s."""
    return 2 * (ranks - 1) / ranks * size / seconds(name, "all_reduce", size, ranks) / 1e9


@pytest.mark.parametrize(
    ("name", "ranks", "measured", "source"),
    [
        ("dgx-a100", 8, 232.5, "NVIDIA/nccl issue 1048"),
        ("dgx-h100", 8, 480.0, "NVIDIA/nccl issue 1455, nccl-tests issue 212: NVLS"),
        ("dgx-a100", 16, 192.0, "NVIDIA/nccl issue 812: two nodes with 8 HDR interfaces each"),
    ],
)
def test_large_all_reduces_reach_what_was_measured(
    name: str, ranks: int, measured: float, source: str
) -> None:
    assert busbw(name, 4e9, ranks) == pytest.approx(measured, rel=0.1), source


sizes = st.floats(min_value=1.0, max_value=1e11)
names = st.sampled_from(SYSTEMS)
kinds = st.sampled_from(KINDS)
ranks_in_a_group = st.integers(min_value=2, max_value=64)


@given(name=names, kind=kinds, size=sizes, ranks=ranks_in_a_group)
def test_never_faster_than_the_links(name: str, kind: Kind, size: float, ranks: int) -> None:
    """A ring moves (n-1)/n of the bytes over every link, twice for an all-reduce.

    A switch that reduces (NVLS) halves what each device sends, so there S over the link remains.
    """
    on = system(name)
    rounds = 2 if kind == "all_reduce" else 1
    wire = rounds * (ranks - 1) / ranks * size
    if kind == "all_reduce" and on.intra.nvls:
        wire = size
    assert seconds(name, kind, size, ranks) >= wire / on.intra.bandwidth


@given(
    name=st.sampled_from(("dgx-a100", "dgx-h100")), kind=kinds, size=sizes, nodes=st.integers(2, 8)
)
def test_never_faster_than_the_interfaces(name: str, kind: Kind, size: float, nodes: int) -> None:
    """With whole nodes in the group, (N-1)/N of the bytes leave each node at the least."""
    on = system(name)
    assert on.network is not None
    ranks = nodes * on.devices_per_node
    rounds = 2 if kind == "all_reduce" else 1
    least = rounds * (nodes - 1) / nodes * size / on.network.node_bandwidth
    assert seconds(name, kind, size, ranks) >= least


@given(name=names, kind=kinds, size=sizes, more=st.floats(1.0, 100.0), ranks=ranks_in_a_group)
def test_more_bytes_take_no_less_time(
    name: str, kind: Kind, size: float, more: float, ranks: int
) -> None:
    assert seconds(name, kind, size * more, ranks) >= seconds(name, kind, size, ranks)


@given(size=sizes, ranks=st.sampled_from([2, 4, 8]))
def test_all_reduce_costs_at_least_one_of_its_halves(size: float, ranks: int) -> None:
    both = seconds("dgx-a100", "all_reduce", size, ranks)
    assert both >= seconds("dgx-a100", "reduce_scatter", size, ranks) * (1 - 1e-12)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_rank_or_no_bytes_cost_nothing(name: str, kind: Kind) -> None:
    assert seconds(name, kind, 1e9, 1) == 0.0
    assert seconds(name, kind, 0.0, 8) == 0.0


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
        one = group("dgx-a100", int(ranks[i]), 1, 64)
        assert together[i] == collective_time(system("dgx-a100"), "all_reduce", sent[i], one)[0]
