"""Large collectives follow from the links that they use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cost.collective.choice import choose
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import Algorithm
from parsim.units import GIB
from tests.parsim.cost.collective.on_systems import system


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
