"""Kernels by name, and where nothing ran between them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from executor.first_hour.kernels import Kernel, described


def test_gaps_and_totals_by_hand() -> None:
    kernels = [
        Kernel("gemm", 0.0, 1.0),
        Kernel("norm", 0.5, 0.75),  # beside the first
        Kernel("gemm", 1.5, 2.0),
        Kernel("copy", 2.0 + 10e-6, 3.0),  # a gap of one launch
    ]
    result = described(kernels)
    assert (result["kernels"], result["span_s"]) == (4, 3.0)
    assert result["idle_s"] == pytest.approx(0.5 + 10e-6)
    assert result["idle_share"] == pytest.approx((0.5 + 10e-6) / 3.0)
    assert result["by_name"][0] == {"name": "gemm", "count": 2, "seconds": 1.5}
    assert result["long_gaps"] == [{"seconds": 0.5, "after": "gemm", "before": "gemm"}]


def test_nothing_was_recorded() -> None:
    assert described([]) == {"kernels": 0}
