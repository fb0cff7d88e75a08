"""Kernels by name, and where nothing ran between them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from executor.first_hour.kernels import Kernel, described, is_kernel  # noqa: E402


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


def test_named_ranges_on_the_device_are_no_kernels() -> None:
    """Torch repeats them there; on a CPU a range has its operators below it."""
    kinds = torch.autograd.DeviceType
    gpu = SimpleNamespace(device_type=kinds.CUDA, is_user_annotation=False)
    named = SimpleNamespace(device_type=kinds.CUDA, is_user_annotation=True)
    host = SimpleNamespace(device_type=kinds.CPU, is_user_annotation=False, cpu_parent=None)
    below = SimpleNamespace(device_type=kinds.CPU, is_user_annotation=False, cpu_parent=host)
    events = [gpu, named, host, below]
    assert [event for event in events if is_kernel(event, cuda=True)] == [gpu]
    assert [event for event in events if is_kernel(event, cuda=False)] == [host]
