from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.hardware import Device
from parsim.cluster.reader import load_catalog
from parsim.cost.kernel.flash import flash_attention_time
from parsim.cost.kernel.gemm import TILINGS
from parsim.cost.kernel.kernels import gemm_time, grouped_gemm_time, memory_time

DEVICES = ("v100-sxm-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm", "l4", "t4", "cpu")
names = st.sampled_from(DEVICES)
dims = st.integers(min_value=1, max_value=65536)
even = dims.map(lambda size: 8 * size)
"""Sizes whose rows are aligned: between them a product may be padded and be faster."""


def device(name: str) -> Device:
    return load_catalog().device(name)


def fastest(on: Device) -> str:
    return "fp16" if "fp16" in on.peak_flops else "fp32"


def gemm(on: Device, m: int, n: int, k: int, batch: int = 1, extra: float = 0.0) -> float:
    seconds = gemm_time(on, fastest(on), m=m, n=n, k=k, batch=batch, extra_bytes=extra)
    return float(seconds)


def model(on: Device) -> Device:
    """The constants alone, without what was published about the device."""
    return replace(on, calibrated=True)


@given(name=names, m=dims, n=dims, k=dims, batch=st.integers(1, 64))
def test_gemm_respects_the_roofline(name: str, m: int, n: int, k: int, batch: int) -> None:
    on = device(name)
    boost = max(1.0, on.gemm_efficiency)
    for isolated in (True, False):
        seconds = float(
            gemm_time(model(on), fastest(on), m=m, n=n, k=k, batch=batch, isolated=isolated)
        )
        assert seconds >= 2 * m * n * k * batch / (on.peak(fastest(on)) * boost)
        assert seconds >= 2 * (m * k + k * n + m * n) * batch / on.memory_bandwidth
        assert seconds >= on.gemm_latency


@given(name=names, m=dims, n=even, k=even, more=st.integers(1, 8192).map(lambda size: 8 * size))
def test_a_deeper_gemm_takes_no_less_time(name: str, m: int, n: int, k: int, more: int) -> None:
    on = device(name)
    assert gemm(on, m, n, k + more) >= gemm(on, m, n, k) * (1 - 1e-12)


@given(name=names, m=dims, n=even, k=even, more=st.integers(1, 64).map(lambda size: 8 * size))
def test_a_larger_gemm_takes_no_less_time(name: str, m: int, n: int, k: int, more: int) -> None:
    on = device(name)
    here = gemm(on, m, n, k) * (1 - 1e-12)
    assert gemm(on, m + more, n, k) >= here
    assert gemm(on, m, n + more, k) >= here
    assert gemm(on, m, n, k, batch=1 + more) >= here


@given(
    name=names,
    m=dims,
    n=dims,
    k=dims,
    less=st.floats(0.1, 1.0),
    field=st.sampled_from(
        ["peak", "memory_bandwidth", "gemm_cache_bandwidth", "gemm_efficiency", "gemm_sustained"]
    ),
)
def test_a_slower_device_is_never_faster(
    name: str, m: int, n: int, k: int, less: float, field: str
) -> None:
    on = device(name)
    if field == "peak":
        slow = replace(on, peak_flops={key: less * x for key, x in on.peak_flops.items()})
    else:
        slow = replace(on, **{field: less * getattr(on, field)})
    assert gemm(slow, m, n, k) >= gemm(on, m, n, k) * (1 - 1e-12)


@given(name=names, n=dims, k=dims)
def test_one_row_is_bound_by_the_bytes_it_reads(name: str, n: int, k: int) -> None:
    on = model(device(name))
    seconds = float(gemm_time(on, fastest(on), m=1, n=n, k=k, isolated=True))
    reading = 2 * (k + k * n + n) / (on.memory_bandwidth * on.gemm_memory_efficiency)
    assert seconds >= reading


def test_a_large_matrix_times_one_row_takes_the_roofline_time() -> None:
    on = model(device("a100-sxm-80gb"))
    seconds = float(gemm_time(on, "bf16", m=1, n=65536, k=16384, isolated=True))
    reading = 2 * 65536 * 16384 / (on.memory_bandwidth * on.gemm_memory_efficiency)
    assert seconds == pytest.approx(reading, rel=0.1)


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm"])
def test_time_jumps_at_tile_edges_only(name: str) -> None:
    on = model(device(name))
    m = np.arange(256.0, 2048.0)
    seconds = gemm_time(on, "bf16", m=m, n=4096, k=4096, isolated=True)
    jumps = np.flatnonzero(np.diff(seconds) / seconds[:-1] > 0.005)
    edges = {rows for rows, _ in TILINGS[on.gemm_tiles].tiles}
    assert len(jumps) > 0
    assert all(any(m[i] % edge == 0 for edge in edges) for i in jumps)


@given(name=names, m=dims, n=dims, k=dims, extra=st.floats(0, 1e10))
def test_a_fused_epilogue_is_never_free(name: str, m: int, n: int, k: int, extra: float) -> None:
    on = device(name)
    assert gemm(on, m, n, k, extra=extra) >= gemm(on, m, n, k)


def test_accumulating_into_fp32_costs_more() -> None:
    on = model(device("a100-pcie-80gb"))
    shape: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096}
    plain = gemm_time(on, "bf16", **shape, isolated=True)
    wide = gemm_time(on, "bf16", **shape, isolated=True, layout="nt", out_value=4, accumulate=True)
    assert 1.0 < wide / plain < 1.3


def test_a_step_sustains_less_than_a_benchmark() -> None:
    on = device("h100-sxm-80gb")
    shape: dict[str, Any] = {"m": 8192, "n": 8192, "k": 8192}
    step, alone = (float(gemm_time(model(on), "bf16", **shape, isolated=x)) for x in (False, True))
    assert step > alone


def test_published_times_correct_isolated_products_in_16_bit_only() -> None:
    on = device("h100-sxm-80gb")
    shape: dict[str, Any] = {"m": 1024, "n": 8192, "k": 8192}
    for precision, isolated, same in (
        ("bf16", True, False),
        ("fp8", True, True),
        ("bf16", False, True),
    ):
        both = [float(gemm_time(x, precision, **shape, isolated=isolated)) for x in (on, model(on))]
        assert (both[0] == both[1]) == same


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

    def alone(work: float, head_dim: float = 128.0) -> float:
        return float(
            flash_attention_time(
                model(on),
                fastest(on),
                flops=work,
                seq_len=seq_len,
                backward=False,
                head_dim=head_dim,
                isolated=True,
            )
        )

    def seconds(work: float, length: int) -> float:
        return float(
            flash_attention_time(on, fastest(on), flops=work, seq_len=length, backward=backward)
        )

    assert seconds(flops, seq_len) >= flops / on.peak(fastest(on))
    assert alone(flops * more) >= alone(flops) >= on.attention_forward_floor
    assert alone(flops, 192.0) >= alone(flops)
    assert seconds(flops * more, seq_len) >= seconds(flops, seq_len)
    assert seconds(flops, 2 * seq_len) <= seconds(flops, seq_len)


@given(name=names, moved=st.floats(0, 1e12), more=st.floats(0, 1e12), launches=st.integers(1, 50))
def test_memory_bound_kernels(name: str, moved: float, more: float, launches: int) -> None:
    on = device(name)
    assert float(memory_time(on, moved, launches)) >= moved / on.memory_bandwidth
    assert memory_time(on, moved + more, launches) >= memory_time(on, moved, launches)
    assert memory_time(on, moved, launches + 1) >= memory_time(on, moved, launches)


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


groups = st.integers(1, 256)


def test_grouped_products_reach_the_published_rate_of_gb200() -> None:
    """2,672 TFLOP/s in MXFP8: Megatron-LM, docs/discussions, DeepSeek-V3 on GB200 NVL72."""
    seconds = grouped_gemm_time(
        device("gb200"), "mxfp8", experts=8, tokens=16384, n=2048, k=7168, value=1.0
    )
    assert 2.0 * 8 * 16384 * 2048 * 7168 / float(seconds) == pytest.approx(2672e12, rel=0.05)


@given(name=names, experts=groups, tokens=dims, n=dims, k=dims, more=groups, weight=st.booleans())
def test_grouped_products(
    name: str, experts: int, tokens: int, n: int, k: int, more: int, weight: bool
) -> None:
    on = device(name)

    def seconds(experts: int, tokens: int, n: int, k: int) -> float:
        return float(
            grouped_gemm_time(
                on, fastest(on), experts=experts, tokens=tokens, n=n, k=k, weight_gradient=weight
            )
        )

    here = seconds(experts, tokens, n, k)
    assert here >= 2 * experts * tokens * n * k / on.peak(fastest(on))
    assert here >= experts * (on.grouped_gemm_floor + on.grouped_gemm_latency) * (1 - 1e-12)
    for other in (
        (experts + more, tokens, n, k),
        (experts, tokens + more, n, k),
        (experts, tokens, n + more, k),
        (experts, tokens, n, k + more),
    ):
        assert seconds(*other) >= here * (1 - 1e-12)
