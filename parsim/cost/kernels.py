"""Seconds of single kernels on a device: matrix products, attention, memory-bound passes.

Shapes are arrays (or numbers) that broadcast against each other; m, n, k as in
C(m,n) = A(m,k) B(k,n).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.hardware import Device

Array = NDArray[np.float64]
Num = Array | float | int

TILE = 128
"""Edge of the output tile that waves are counted in; libraries change tiles, so waves are soft."""

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


def gemm_time(
    device: Device,
    precision: str,
    *,
    m: Num,
    n: Num,
    k: Num,
    batch: Num = 1,
    value: int = 2,
    extra_bytes: Num = 0.0,
) -> Array:
    """Time of a (batched) matrix product.

    pnorm4( 2mnk batch / (peak e) (1 + k_half/k)(1 + wave_loss/waves), bytes / (HBM e_h) ) + t0,
    waves = ceil(m/128) ceil(n/128) batch / SMs, bytes = value (mk + kn + mn) batch + extra.

    Args:
        device: gives peak, e, k_half, wave_loss, HBM bandwidth, e_h, t0 and the SM count.
        precision: which peak.
        m: rows of the result.
        n: columns of the result.
        k: inner dimension.
        batch: independent products in one launch.
        value: bytes of one element.
        extra_bytes: further traffic of a fused epilogue.

    Source: form and errors in CONTRIBUTING's kernel note: fits to 1,726 public GEMM timings have a
    median error of 4 to 10 % per device (vidur, SimuMax tables).
    Leaves out: the library's choice of tile and split-K, clocks, contents of the matrices.
    """
    batch, m, n, k = (np.asarray(x, dtype=np.float64) for x in (batch, m, n, k))
    tiles = np.ceil(m / TILE) * np.ceil(n / TILE) * batch
    waves = tiles / device.sm_count
    rate = device.peak(precision) * device.gemm_efficiency
    slow = (1.0 + device.gemm_k_half / k) * (1.0 + device.gemm_wave_loss / waves)
    compute = 2.0 * m * n * k * batch / rate * slow
    moved = value * (m * k + k * n + m * n) * batch + extra_bytes
    memory = moved / (device.memory_bandwidth * device.memory_efficiency)
    return smooth_max(compute, memory, 4.0) + device.kernel_latency


def flash_attention_time(
    device: Device,
    precision: str,
    *,
    flops: Num,
    seq_len: float,
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
    return np.asarray(flops / rate * (1.0 + FLASH_HALF_LENGTH / seq_len)) + device.kernel_latency


def memory_time(device: Device, moved: Num, launches: Num = 1) -> Array:
    """Time of memory-bound kernels: bytes / (HBM e_h) + launches t0/2.

    Source: slope of large norm, dropout and optimizer kernels, 0.73 to 0.9 of the peak.
    Leaves out: cache hits between neighbouring kernels.
    """
    seconds = np.asarray(moved) / (device.memory_bandwidth * device.memory_efficiency)
    return np.asarray(seconds + 0.5 * device.kernel_latency * np.asarray(launches))
