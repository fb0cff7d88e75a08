"""Seconds of single kernels on a device: matrix products and memory-bound passes.

Shapes are arrays (or numbers) that broadcast against each other; m, n, k as in
C(m,n) = A(m,k) B(k,n). `isolated` asks for a kernel alone in a benchmark, with what was published
about the device; otherwise for one in a training step, at the clock and power that steps sustain.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from parsim.arrays import Array, Num, distinct
from parsim.cluster.hardware import Device, Measured
from parsim.cluster.measured.published import Scales, benchmark
from parsim.cost.kernel.gemm import Products, aligned_share, body_time
from parsim.cost.kernel.residuals import measured_factor
from parsim.cost.kernel.smooth_max import smooth_max

Layout = Literal["tn", "nn", "nt"]
Side = Literal["m", "n", "k"]

BENCHMARKS_IN_STEPS: bool = False
"""Whether published residuals of kernels correct kernels in training steps too: they do not, the
step tables are no better with them (reports/kernels.md)."""

CONTIGUOUS: tuple[Side, ...] = ("n", "k")
"""Sides along which a product's result and operands lie in memory, where nothing else is said."""
SIXTEEN_BIT = ("bf16", "fp16")
"""Precisions whose products take the device's `fp16_efficiency`."""
PUBLISHED = SIXTEEN_BIT
"""Precisions of the published kernels: other ones say nothing about the choices of these."""
NARROW = ("fp8", "mxfp8", "nvfp4", "mxfp4")
"""Precisions whose products take the device's `fp8_efficiency`."""
NARROWEST = ("nvfp4", "mxfp4")
"""Precisions whose products take its `fp4_efficiency` too."""
ACCUMULATE = "accumulate"
"""Kind of a pass that adds one long vector to another."""


def gemm_time(  # noqa: PLR0913 - a keyword for each fact of a kernel, as everywhere here
    device: Device,
    precision: str,
    *,
    m: Num,
    n: Num,
    k: Num,
    batch: Num = 1,
    value: float = 2,
    extra_bytes: Num = 0.0,
    layout: Layout = "tn",
    out_value: int | None = None,
    accumulate: bool = False,
    isolated: bool = False,
    contiguous: tuple[Side, ...] = CONTIGUOUS,
) -> Array:
    """Time of a (batched) matrix product.

    t0 + body + (r - 1) max(0, body - tau), body by the tile model of
    `parsim/cost/kernel/gemm.py` with bytes = (value (mk + kn) + out_value mn (1 + accumulate))
    batch + extra; times one factor where the result accumulates into fp32. Without residuals it
    never shrinks as m, n, k or batch grow, if the rows of both stay as aligned as they are
    (`parsim/cost/kernel/gemm.py`).

    Args:
        device: gives peak, bandwidth, SM count and the `gemm_*` constants.
        precision: which peak.
        m: rows of the result.
        n: columns of the result.
        k: inner dimension.
        batch: independent products in one launch.
        value: bytes of one element.
        extra_bytes: further traffic of a fused epilogue.
        layout: which operands are transposed; published residuals differ by it.
        out_value: bytes of one element of the result; as `value` if None.
        accumulate: the result is added to what is there.
        isolated: alone in a benchmark; see the head of this file.
        contiguous: names of the sides along which operands and result lie in memory.

    Source: tile model fitted to the vidur and SimuMax tables, `reports/kernels.md`: on shapes
    outside the fit 4.9 % median and 13 % at p90 on A100, 4.7 and 15 % on H100, with residuals 4.0
    and 12 % on both. In steps, `gemm_sustained` stands for the clock instead of r and tau.
    Leaves out: the library's choice of kernel, contents of the matrices.
    """
    m, n, k, batch = (np.asarray(x, dtype=np.float64) for x in (m, n, k, batch))
    out = (value if out_value is None else out_value) * (2.0 if accumulate else 1.0)
    moved = (value * (m * k + k * n) + out * m * n) * batch + extra_bytes
    shape = (m, n, k, batch, moved)
    seconds = _product_time(device, precision, shape, value, isolated, contiguous)
    wide = accumulate and out == 8.0 > 2.0 * value
    if wide:
        seconds = seconds * device.gemm_accumulate_factor
    where = (m * batch, n, k, layout_code(layout, wide))
    return corrected(device, "gemm", seconds, where, isolated and precision in PUBLISHED)


def layout_code(layout: Layout, wide: bool) -> float:
    """Layouts as a coordinate of measured points: one octave from each to the next."""
    return 8.0 if wide else {"tn": 1.0, "nn": 2.0, "nt": 4.0}[layout]


def _product_time(
    device: Device,
    precision: str,
    shape: tuple[Num, Num, Num, Num, Num],
    value: float,
    isolated: bool,
    contiguous: tuple[Side, ...],
) -> Array:
    """Seconds of products by the tile model, each distinct one priced once."""
    (m, n, k, batch, moved), back, whole = distinct(*shape)
    sides = {"m": m, "n": n, "k": k}
    aligned = aligned_share(device, [sides[name] for name in contiguous], value)
    share = device.gemm_efficiency * _narrow(device, precision)
    share = share * (device.fp16_efficiency if precision in SIXTEEN_BIT else 1.0)
    rate = device.peak(precision) * share * (1.0 if isolated else device.gemm_sustained)
    products = Products(m=m, n=n, k=k, batch=batch, value=value, moved=moved, aligned=aligned)
    body = body_time(device, rate, products)
    if isolated:
        body = body + (device.gemm_clock_drop - 1.0) * np.maximum(body - device.gemm_boost_time, 0)
    seconds = device.gemm_latency + body
    return np.asarray(seconds if back is None else seconds[back]).reshape(whole)


def _narrow(device: Device, precision: str) -> float:
    """Factor on the share of the peak that products in 8 bit or less reach; 1 for wider ones."""
    share = device.fp8_efficiency if precision in NARROW else 1.0
    return share * (device.fp4_efficiency if precision in NARROWEST else 1.0)


def grouped_gemm_time(  # noqa: PLR0913
    device: Device,
    precision: str,
    *,
    experts: Num,
    tokens: Num,
    n: Num,
    k: Num,
    weight_gradient: bool = False,
    value: float = 2,
    gradient_value: float = 4,
) -> Array:
    """Time of the products of `experts` with `tokens` each, one after the other.

    experts (pnorm4(max(ceil(M / t) t / M FLOPs / (peak e), bytes / (hb H)), floor) + c), M the
    tokens of an expert, t the rows of the device's tiles, FLOPs = 2 M n k. Bytes: value
    (M k + k n + M n); the weight gradient reads and writes n k of `gradient_value` instead.

    Source: SimuMax, 108 B200 rows and 12 A100 rows: 8 % median in sample, 10 % on a shape left out,
    p90 24 %. The rows are long runs of kernels, so they hold in steps as they are.
    Leaves out: kernels that take all experts in one launch (faster), unequal tokens per expert.
    """
    experts, tokens, n, k = (np.asarray(x, dtype=np.float64) for x in (experts, tokens, n, k))
    share = device.grouped_weight_efficiency if weight_gradient else device.grouped_gemm_efficiency
    share = share * _narrow(device, precision)
    filled = np.ceil(tokens / device.grouped_gemm_tile) * device.grouped_gemm_tile
    compute = 2.0 * filled * n * k / (device.peak(precision) * share)
    weights = 2.0 * gradient_value * n * k if weight_gradient else value * n * k
    moved = value * tokens * (n + k) + weights
    memory = moved / (device.memory_bandwidth * device.gemm_memory_efficiency)
    each = smooth_max(np.maximum(compute, memory), device.grouped_gemm_floor, 4)
    return np.asarray(experts * (each + device.grouped_gemm_latency))


def memory_time(device: Device, moved: Num, launches: Num = 1, kind: str = "") -> Array:
    """Time of memory-bound kernels: bytes / (HBM e_h) + launches t0/2.

    `kind` is what a calibration may have measured by itself: "gelu_forward", "optimizer".

    Source: slope of large norm, dropout and optimizer kernels, 0.73 to 0.9 of the peak.
    Leaves out: cache hits between neighbouring kernels.
    """
    seconds = np.asarray(moved) / (device.memory_bandwidth * device.memory_efficiency)
    seconds = seconds + 0.5 * device.kernel_latency * np.asarray(launches)
    return np.asarray(seconds * measured_factor(device.residuals, kind, moved))


def memory_excess(device: Device, rate: float) -> float:
    """How much longer kernels take than their bytes if a multiprocessor moves `rate` a second.

    max(1, H e_h / (SMs rate)): kernels that gather rows, or compute much for each value, reach the
    memory's rate only where the multiprocessors keep up with it. A TPU has none: its `sm_count` are
    matrix units, which copy nothing.

    Source: a roof by issue rate beside the memory's (Williams et al. 2009); rates are fitted.
    Leaves out: clocks, which differ less between parts than memories do.
    """
    if rate <= 0.0 or device.copies_at_memory_rate:
        return 1.0
    return max(1.0, device.memory_bandwidth * device.memory_efficiency / (device.sm_count * rate))


def known_points(device: Device, kind: str, published: bool) -> tuple[Measured, Scales | None]:
    """The points that correct a kind: a calibration's own, else published ones if asked for."""
    if device.calibrated or kind in device.residuals or not (published or BENCHMARKS_IN_STEPS):
        return device.residuals, None
    published_points = benchmark(device.id)
    return published_points.points, published_points.scales.get(kind)


def corrected(
    device: Device, kind: str, seconds: Array, where: tuple[Num, ...], published: bool
) -> Array:
    """Seconds times what was measured over what is modelled at the nearest points of a kind."""
    points, scales = known_points(device, kind, published)
    return np.asarray(seconds * measured_factor(points, kind, *where, scales=scales))
