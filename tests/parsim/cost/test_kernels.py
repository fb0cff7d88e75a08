from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Device
from parsim.cluster.reader import load_catalog
from parsim.cost.kernels import flash_attention_time, gemm_time, memory_time, smooth_max

DEVICES = ("v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm", "l4", "t4", "cpu")
names = st.sampled_from(DEVICES)
dims = st.integers(min_value=1, max_value=65536)


def device(name: str) -> Device:
    return load_catalog().device(name)


def fastest(on: Device) -> str:
    return "fp16" if "fp16" in on.peak_flops else "fp32"


def gemm(on: Device, m: int, n: int, k: int, batch: int = 1, extra: float = 0.0) -> float:
    seconds = gemm_time(on, fastest(on), m=m, n=n, k=k, batch=batch, extra_bytes=extra)
    return float(seconds)


@given(name=names, m=dims, n=dims, k=dims, batch=st.integers(1, 64))
def test_gemm_respects_the_roofline(name: str, m: int, n: int, k: int, batch: int) -> None:
    on = device(name)
    seconds = gemm(on, m, n, k, batch)
    assert seconds >= 2 * m * n * k * batch / on.peak(fastest(on))
    assert seconds >= 2 * (m * k + k * n + m * n) * batch / on.memory_bandwidth
    assert seconds >= on.kernel_latency


@given(name=names, m=dims, n=dims, k=dims, more=st.integers(1, 65536))
def test_a_deeper_gemm_takes_no_less_time(name: str, m: int, n: int, k: int, more: int) -> None:
    on = device(name)
    assert gemm(on, m, n, k + more) >= gemm(on, m, n, k) * (1 - 1e-12)


@given(name=names, m=dims, n=dims, k=dims, more=st.integers(1, 512))
def test_a_larger_gemm_takes_no_less_time(name: str, m: int, n: int, k: int, more: int) -> None:
    on = device(name)
    here = gemm(on, m, n, k) * (1 - 1e-12)
    assert gemm(on, m + more, n, k) >= here
    assert gemm(on, m, n + more, k) >= here
    assert gemm(on, m, n, k, batch=1 + more) >= here


@given(name=names, m=dims, n=dims, k=dims, extra=st.floats(0, 1e10))
def test_a_fused_epilogue_is_never_free(name: str, m: int, n: int, k: int, extra: float) -> None:
    on = device(name)
    assert gemm(on, m, n, k, extra=extra) >= gemm(on, m, n, k)


@given(name=names, k=dims)
def test_gemm_is_symmetric_in_rows_and_columns(name: str, k: int) -> None:
    on = device(name)
    assert gemm(on, 512, 4096, k) == pytest.approx(gemm(on, 4096, 512, k), rel=1e-12)


@given(
    name=names,
    flops=st.floats(1e6, 1e16),
    more=st.floats(1, 100),
    seq_len=st.integers(16, 131072),
    backward=st.booleans(),
)
def test_flash_attention(
    name: str, flops: float, more: float, seq_len: int, backward: bool
) -> None:
    on = device(name)

    def seconds(work: float, length: int) -> float:
        return float(
            flash_attention_time(on, fastest(on), flops=work, seq_len=length, backward=backward)
        )

    assert seconds(flops, seq_len) >= flops / on.peak(fastest(on))
    assert seconds(flops * more, seq_len) >= seconds(flops, seq_len)
    assert seconds(flops, 2 * seq_len) <= seconds(flops, seq_len)


@given(name=names, moved=st.floats(0, 1e12), more=st.floats(0, 1e12), launches=st.integers(1, 50))
def test_memory_bound_kernels(name: str, moved: float, more: float, launches: int) -> None:
    on = device(name)
    assert float(memory_time(on, moved, launches)) >= moved / on.memory_bandwidth
    assert memory_time(on, moved + more, launches) >= memory_time(on, moved, launches)
    assert memory_time(on, moved, launches + 1) >= memory_time(on, moved, launches)


positive = st.floats(min_value=0, max_value=1e6)


@given(a=positive, b=positive, power=st.sampled_from([2.0, 4.0, 8.0]))
def test_smooth_maximum_lies_above_and_near_the_maximum(a: float, b: float, power: float) -> None:
    found = float(smooth_max(a, b, power))
    assert max(a, b) <= found <= max(a, b) * 2 ** (1 / power) * (1 + 1e-12)
    assert found == float(smooth_max(b, a, power))


def test_smooth_maximum_of_tiny_and_zero_values() -> None:
    assert float(smooth_max(0.0, 0.0, 8.0)) == 0.0
    assert float(smooth_max(1e-60, 0.0, 8.0)) == 1e-60
    assert smooth_max(np.array([3e-60, 1.0]), 4e-60, 2.0) == pytest.approx([5e-60, 1.0])


def test_shapes_broadcast() -> None:
    on = device("a100-sxm-80gb")
    m = np.array([128.0, 1024.0, 8192.0])
    together = gemm_time(on, "bf16", m=m, n=4096, k=np.array([[1024.0], [4096.0]]))
    assert together.shape == (2, 3)
    alone = gemm_time(on, "bf16", m=8192, n=4096, k=4096)
    assert together[1, 2] == alone


def test_no_gemm_reaches_the_peak_and_large_ones_come_near() -> None:
    on = device("a100-sxm-80gb")
    share = 2 * 8192**3 / on.peak("bf16") / gemm(on, 8192, 8192, 8192)
    assert 0.6 < share < 1.0
