"""Bounds and orders that no collective breaks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.collective.kinds import CollectiveKind
from tests.parsim.cost.collective.on_systems import (
    KINDS,
    SYSTEMS,
    group,
    names,
    seconds,
    sizes,
    system,
)

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
