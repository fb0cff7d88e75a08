"""Devices of whose products little is public: the tile model gives that little back."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.kernels import gemm_time

SQUARES = np.array([1024, 2048, 4096, 8192, 10240], dtype=np.float64)

# device, precision -> FLOP/s of the best square:
# database.md of zzc0721/torch-performance-test-data (commit 9d82827)
BEST = {
    ("rtx-3090", "bf16"): 76.1e12,
    ("rtx-4090", "bf16"): 165.5e12,
    ("rtx-2080-ti", "fp32"): 13.04e12,
    ("rtx-2080-ti", "fp16"): 58.58e12,
    ("l4", "bf16"): 69.8e12,
    ("l40s", "bf16"): 266.5e12,
    ("t4", "fp16"): 42.2e12,
    ("h20-sxm", "bf16"): 142e12,
}


def rates(id: str, precision: str, sides: Array) -> Array:
    """FLOP/s of square products in a step, by their sides."""
    value = 4.0 if precision == "fp32" else 2.0
    device = load_catalog().device(id)
    seconds = gemm_time(device, precision, m=sides, n=sides, k=sides, value=value)
    return np.asarray(2.0 * sides**3 / seconds)


@pytest.mark.parametrize(("id", "precision"), BEST)
def test_the_best_square_comes_out(id: str, precision: str) -> None:
    best = rates(id, precision, SQUARES).max()
    assert best == pytest.approx(BEST[id, precision], rel=0.005)


def test_products_of_a_tpu_v5e_are_those_of_xla() -> None:
    # docs/pallas/tpu/matmul.ipynb of jax-ml/jax (commit 1082251); at 4096 cubed a dispatch shows
    rate = rates("tpu-v5e", "bf16", np.array([4096.0, 8192.0]))
    assert rate[1] == pytest.approx(181.8e12, rel=0.005)
    assert 166.1e12 < rate[0] < rate[1]


@pytest.mark.parametrize(
    ("id", "precision", "measured"),
    [
        ("a100-sxm-80gb", "bf16", 265e12),  # two boards, one of them an A800
        ("a100-sxm-40gb", "bf16", 247e12),
        ("v100-sxm-16gb", "fp16", 94.8e12),
    ],
)
def test_fitted_rates_are_near_boards_in_no_fit(id: str, precision: str, measured: float) -> None:
    """Boards of that table, of devices whose products were fitted to others."""
    assert rates(id, precision, SQUARES).max() == pytest.approx(measured, rel=0.06)
