"""What small collectives and slow networks wait for."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.measured_curve import shape
from tests.parsim.cost.collective.on_systems import system


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
