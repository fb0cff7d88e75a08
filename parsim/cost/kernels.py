"""Seconds of single kernels on a device: matrix products, attention, memory-bound passes.

Shapes are arrays (or numbers) that broadcast against each other; m, n, k as in
C(m,n) = A(m,k) B(k,n).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import Device
from parsim.cost.residuals import measured_factor

Array = NDArray[np.float64]
Num = Array | float | int

TILE = 128.0
"""Edge of an output tile. Libraries change tiles, so the loss of a partly full wave is soft."""

FLASH_HALF_LENGTH = 300.0
"""Sequence length at which a flash kernel reaches half its rate (fit to MPT and NeMo rows)."""


def smooth_max(a: Num, b: Num, power: float) -> Array:
    """(a^p + b^p)^(1/p): a maximum whose corner is rounded where both terms matter.

    Scaled by the larger term so that small seconds do not underflow.
    """
    high = np.maximum(a, b)
    low = np.minimum(a, b)
    ratio = np.divide(low, high, out=np.zeros(np.shape(high)), where=np.asarray(high) > 0)
    return np.asarray(high * (1.0 + ratio**power) ** (1.0 / power))


def tile_edge(size: Array) -> Array:
    """Edge of the output tile along one dimension: 128, less for narrow matrices (32 or 64)."""
    return np.asarray(np.clip(2.0 ** np.ceil(np.log2(size)), 32.0, TILE))


def gemm_time(
    device: Device,
    precision: str,
    *,
    m: Num,
    n: Num,
    k: Num,
    batch: Num = 1,
    value: float = 2,
    extra_bytes: Num = 0.0,
) -> Array:
    """Time of a (batched) matrix product.

    pnorm4( 2 tm tn (tiles + wave_loss SMs)(k + k_half) / (peak e), bytes / (HBM e_h) ) + t0,
    tiles = ceil(m/tm) ceil(n/tn) batch: whole tiles are computed, and the last wave is only partly
    full; bytes = value (mk + kn + mn) batch + extra. Never shrinks as m, n, k or batch grow.

    Args:
        device: gives peak, e, k_half, wave_loss, HBM bandwidth, e_h, t0 and the SM count.
        precision: which peak.
        m: rows of the result.
        n: columns of the result.
        k: inner dimension.
        batch: independent products in one launch.
        value: bytes of one element.
        extra_bytes: further traffic of a fused epilogue.

    Source: roofline with tile waves, as in the GEMM studies cited beside the device constants. On
    812 public A100 shapes (vidur) the median error is 13 %, bias -10 %, with the catalog's e; on
    588 H100 shapes 14 %, bias +15 %. With e = 0.8 both have 6 to 7 %: the catalog's e is fitted to
    whole steps, where clocks, fusion and data differ from a kernel benchmark.
    Leaves out: the library's choice of tile and split-K, clocks, contents of the matrices.
    """
    batch, m, n, k = (np.asarray(x, dtype=np.float64) for x in (batch, m, n, k))
    area = tile_edge(m) * tile_edge(n)
    tiles = np.ceil(m / tile_edge(m)) * np.ceil(n / tile_edge(n)) * batch
    rate = device.peak(precision) * device.gemm_efficiency
    work = tiles + device.gemm_wave_loss * device.sm_count
    compute = 2.0 * area * work * (k + device.gemm_k_half) / rate
    moved = value * (m * k + k * n + m * n) * batch + extra_bytes
    memory = moved / (device.memory_bandwidth * device.memory_efficiency)
    seconds = smooth_max(compute, memory, 4.0) + device.kernel_latency
    return np.asarray(seconds * measured_factor(device.residuals, "gemm", m * batch, n, k))


def flash_attention_time(
    device: Device,
    precision: str,
    *,
    flops: Num,
    seq_len: Num,
    backward: bool,
    efficiency: float = 1.0,
) -> Array:
    """Time of a fused attention kernel for its really executed FLOPs.

    flops / (peak e) (1 + 300/s) + t0, with separate forward and backward e.

    Source: fits to llm-foundry (Triton flash) and NeMo (cuDNN) steps; `efficiency` is the
    software's factor between the two.
    Leaves out: head sizes other than 128 (64 is up to a third slower), very short sequences.
    """
    share = (
        device.attention_backward_efficiency if backward else device.attention_forward_efficiency
    )
    rate = device.peak(precision) * share * efficiency
    seconds = flops / rate * (1.0 + FLASH_HALF_LENGTH / seq_len) + device.kernel_latency
    kind = "attention_backward" if backward else "attention_forward"
    return np.asarray(seconds * measured_factor(device.residuals, kind, flops, seq_len))


def memory_time(device: Device, moved: Num, launches: Num = 1, kind: str = "") -> Array:
    """Time of memory-bound kernels: bytes / (HBM e_h) + launches t0/2.

    `kind` is what a calibration may have measured by itself: "gelu_forward", "optimizer".

    Source: slope of large norm, dropout and optimizer kernels, 0.73 to 0.9 of the peak.
    Leaves out: cache hits between neighbouring kernels.
    """
    seconds = np.asarray(moved) / (device.memory_bandwidth * device.memory_efficiency)
    seconds = seconds + 0.5 * device.kernel_latency * np.asarray(launches)
    return np.asarray(seconds * measured_factor(device.residuals, kind, moved))
