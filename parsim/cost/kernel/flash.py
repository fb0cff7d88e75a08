"""Seconds of fused attention kernels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Num
from parsim.cluster.hardware import Device
from parsim.cost.kernel.kernels import corrected
from parsim.cost.kernel.smooth_max import smooth_max

WIDE_HEAD = 128.0
"""Heads wider than this take the `attention_*_wide` factor."""


def flash_attention_time(  # noqa: PLR0913
    device: Device,
    precision: str,
    *,
    flops: Num,
    seq_len: Num,
    backward: bool,
    efficiency: float = 1.0,
    head_dim: float = 128.0,
    narrow: str | None = None,
    isolated: bool = False,
) -> Array:
    """Time of a fused attention kernel for its really executed FLOPs.

    In a step F / (peak e) (1 + L/s) + t0; isolated (floor^4 + (t + F / (peak e))^4)^(1/4). Each
    direction has its e, and its factor for heads wider than 128; L is the half-length. F counts a
    causal kernel's half of the square, so e is half of what SimuMax prints.

    Args:
        device: gives peak, e and the latencies.
        precision: which peak.
        flops: executed, backward 2.5 times the forward ones.
        seq_len: keys of one query, where the half-length counts.
        backward: which direction.
        efficiency: the software's factor on e.
        head_dim: of queries and keys.
        narrow: the format of 8 bit that it takes its operands in, None for 16 bit; its rate is the
            device's `quantized_attention` over that of 16 bit.
        isolated: alone in a benchmark, whose calls have latencies and floors of about 100 us.

    Source: SimuMax, A100 PCIe and B200, `reports/kernels.md`; in steps, where kernels queue, fits
    to llm-foundry (Triton flash) and NeMo (cuDNN) rows.
    Leaves out: heads smaller than 128 (64 is up to a third slower), windows, cross attention.
    """
    flash = _flash(device, backward=backward)
    share = efficiency * flash.efficiency
    if head_dim > WIDE_HEAD:
        share *= flash.wide
    if narrow is not None:
        share *= device.attention_gain(narrow, backward=backward, wide=head_dim > WIDE_HEAD)
    work = np.asarray(flops, dtype=np.float64) / (device.peak(precision) * share)
    if isolated:
        seconds = smooth_max(flash.floor, flash.latency + work, 4)
    else:
        work = work / device.attention_sustained * (1.0 + device.attention_half_length / seq_len)
        seconds = work + device.kernel_latency
    where = (flops, seq_len, head_dim)
    kind = "attention_backward" if backward else "attention_forward"
    return corrected(device, kind, seconds, where, isolated)


class _Flash(NamedTuple):
    """A direction's share of the peak, its factor for wide heads, and its seconds when alone."""

    efficiency: float
    wide: float
    latency: float
    floor: float


def _flash(device: Device, *, backward: bool) -> _Flash:
    if backward:
        return _Flash(
            efficiency=device.attention_backward_efficiency,
            wide=device.attention_backward_wide,
            latency=device.attention_backward_latency,
            floor=device.attention_backward_floor,
        )
    return _Flash(
        efficiency=device.attention_forward_efficiency,
        wide=device.attention_forward_wide,
        latency=device.attention_forward_latency,
        floor=device.attention_forward_floor,
    )
