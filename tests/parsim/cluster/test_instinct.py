"""AMD Instinct devices and nodes: figures that follow from others, and what is public of them."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.cluster.hardware import System
from parsim.cluster.reader import load_catalog
from parsim.cost.collective.choice import choose
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.nccl import Call, estimates
from parsim.cost.kernel.kernels import gemm_time

MI_NODES = ("mi300x-node", "mi325x-node", "mi350x-node", "mi355x-node")

# compute units, matrix cores of each, multiply-adds of a core and clock tick, GHz: bf16
CHIPS = {
    "mi250x": (110, 4, 128, 1.7),
    "mi300x": (304, 4, 256, 2.1),
    "mi325x": (304, 4, 256, 2.1),
    "mi350x": (256, 4, 512, 2.2),
    "mi355x": (256, 4, 512, 2.4),
}


@pytest.mark.parametrize("id", CHIPS)
def test_peaks_are_those_of_the_units_and_clock(id: str) -> None:
    device = load_catalog().device(id)
    units, cores, products, clock = CHIPS[id]
    peak = units * cores * products * 2.0 * clock * 1e9
    assert device.sm_count == units
    assert device.peak("bf16") == device.peak("fp16") == pytest.approx(peak, rel=1e-3)
    if id == "mi250x":
        assert "fp8" not in device.peak_flops
    else:
        assert device.peak("fp8") == pytest.approx(2.0 * peak, rel=1e-3)


# device -> m, n, k and FLOP/s of its best product, mamf-finder (stas00/ml-engineering)
BEST = {
    "mi300x": (10240, 15360, 8192, 668.4e12),
    "mi325x": (13312, 10240, 8192, 784.9e12),
    "mi355x": (12288, 8192, 8192, 1565e12),
}


@pytest.mark.parametrize("id", BEST)
def test_the_best_public_product_comes_out(id: str) -> None:
    m, n, k, rate = BEST[id]
    seconds = float(gemm_time(load_catalog().device(id), "bf16", m=m, n=n, k=k, isolated=True))
    assert 2.0 * m * n * k / seconds == pytest.approx(rate, rel=0.01)


def all_reduce(ranks: int, size: float) -> float:
    """Seconds of an all-reduce of the first ranks of a node of MI300X."""
    node = load_catalog().system("mi300x-node")
    return float(collective_time(node, "all_reduce", np.array([size]), one_group(node, ranks))[0])


def test_public_all_reduces_of_a_node() -> None:
    # bus bandwidth: 161 at 8 MiB, 230 at 64 MiB, 313 at 4 GiB of 8; 47.7 of two, by one link
    for size, busbw in ((2**23, 161e9), (2**26, 230e9), (2**32, 312.9e9)):
        assert all_reduce(8, size) == pytest.approx(1.75 * size / busbw, rel=0.11)
    assert all_reduce(2, 2**32) == pytest.approx(2**32 / 47.671e9, rel=0.06)


def choice(node: System, size: float) -> tuple[str, str, str]:
    """What RCCL does with an all-reduce of a whole node."""
    taken = choose(node, "all_reduce", size, one_group(node, 8))
    return taken.library, taken.algorithm, taken.protocol


@pytest.mark.parametrize("id", MI_NODES)
def test_a_large_all_reduce_takes_rccls_ring(id: str) -> None:
    node = load_catalog().system(id)
    assert choice(node, 2.0**30) == ("rccl-2.21", "ring", "Simple")
    # its flags come with each value and need fewer steps to be seen
    assert choice(node, 2.0**10)[2] == "LL"


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_rccl_has_no_ll128_and_no_simple_tree_on_one_node(nodes: int) -> None:
    node = load_catalog().system("mi300x-node")
    call = Call(
        kind="all_reduce",
        size=2.0**28,
        ranks=8.0 * nodes,
        per_node=8.0,
        nodes=float(nodes),
        link="nvlink",
        generation="xgmi",
        total=node.intra.rate,
        out=400e9 if nodes > 1 else np.inf,
        nvls=False,
        sharp=False,
    )
    known = estimates("rccl-2.21", call)
    assert not [pair for pair in known if pair[1] == "LL128"]
    assert (("tree", "Simple") in known) == (nodes > 1)
    # ring, Simple: 17 us and 2 (n - 1) hops of 2.1 us on one node; its bytes by what leads out
    if nodes == 1:
        bytes_time = 1.75 * call.size / node.intra.rate
        assert known["ring", "Simple"] == pytest.approx((17 + 14 * 2.1) * 1e-6 + bytes_time)
