"""Rows that do not start at multiples of 16 bytes cost a product its rate, in three steps."""

from __future__ import annotations

import csv
from statistics import median

import numpy as np
import pytest

from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.gemm import aligned_bytes, aligned_share
from parsim.cost.kernel.kernels import gemm_time
from parsim.validation.kernel.validate import validate_kernels
from parsim.validation.tables import shipped_tables

A100 = load_catalog().device("a100-sxm-80gb")
LOGITS = 50_257
"""Rows of GPT-2's table, an odd number."""


def test_the_widest_load_that_fits_all_rows() -> None:
    rows = np.array([4096.0, 4104.0, 4100.0, 4098.0, 4097.0])
    assert aligned_bytes([rows], 2).tolist() == [16.0, 16.0, 8.0, 4.0, 2.0]
    assert aligned_bytes([rows, 4100.0], 2).tolist() == [8.0, 8.0, 8.0, 4.0, 2.0]
    assert aligned_bytes([rows], 1).tolist() == [16.0, 8.0, 4.0, 2.0, 1.0]
    assert aligned_bytes([2880.0], 1.0 + 1.0 / 32.0) == 16.0  # a scale for 32 values lies apart


def test_shares_have_three_steps() -> None:
    rows = np.array([4104.0, 4100.0, 4098.0, 4097.0])
    expected = [1.0, A100.gemm_unaligned, A100.gemm_unaligned, A100.gemm_odd]
    assert aligned_share(A100, [rows], 2).tolist() == expected


@pytest.mark.parametrize(("name", "value"), [("cpu", 4.0), ("a100-sxm-80gb", 4.0), ("p40", 4.0)])
def test_wide_values_and_cores_lose_nothing(name: str, value: float) -> None:
    assert float(aligned_share(load_catalog().device(name), [4097.0], value)) == 1.0


def test_an_odd_vocabulary_costs_what_the_sweeps_say() -> None:
    """A large product is bound by its arithmetic: the share is that of its time."""
    times = gemm_time(A100, "bf16", m=8192, n=np.array([LOGITS, 50_304]), k=4096)
    assert times[0] / times[1] == pytest.approx(LOGITS / 50_304 / A100.gemm_odd, rel=0.02)


def test_tokens_of_a_weight_gradient_do_not_count() -> None:
    times = [
        float(gemm_time(A100, "bf16", m=4096, n=4096, k=tokens, contiguous=("m", "n")))
        for tokens in (8191, 8192)
    ]
    assert times[0] == pytest.approx(times[1], rel=0.01)


def test_the_published_sweeps() -> None:
    """The median error over all products is that of kernels whose rows are aligned."""
    (table,) = [path for path in shipped_tables("kernels") if "alignment" in path.stem]
    rows = validate_kernels([table]).rows
    errors = [abs(row.error) for row in rows if row.error is not None and "a100" in row.device]
    assert len(errors) == 939
    assert median(errors) < 0.08


@pytest.mark.parametrize("name", ["v100-sxm-16gb", "a100-sxm-40gb"])
def test_aligned_products_of_one_sweep_on_two_devices_are_off_to_neither_side(name: str) -> None:
    """Tensor cores of a V100 reach 0.9 of the share of their peak that an A100's do."""
    (table,) = [path for path in shipped_tables("kernels") if "alignment" in path.stem]
    device, ratios = load_catalog().device(name), []
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        m, n, k = (int(row[side]) for side in "mnk")
        if (row["gpu_type"], row["op"]) == (name, "mm") and not (m % 64 or n % 64 or k % 64):
            seconds = float(gemm_time(device, row["dtype"], m=m, n=n, k=k, isolated=True))
            ratios.append(seconds * float(row["achieved_tflops"]) * 1e12 / (2.0 * m * n * k))
    assert len(ratios) == 80
    assert median(ratios) == pytest.approx(1.0, abs=0.03)
