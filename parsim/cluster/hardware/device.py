"""One accelerator, or a share of a CPU socket: its rates, and how well kernels use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from parsim.cluster.evidence import RecordedStep
from parsim.errors import CatalogError

Tiles = Literal["core", "ampere", "hopper", "blackwell"]
CONVOLUTION: Mapping[str, float] = {
    "1x1_forward": 0.85,
    "1x1_data": 0.61,
    "1x1_weight": 0.49,
    "3x3_forward": 1.57,
    "3x3_data": 1.60,
    "3x3_weight": 1.90,
    "strided_forward": 0.85,
    "strided_data": 0.58,
    "strided_weight": 0.64,
    "other_forward": 1.09,
    "other_data": 1.39,
    "other_weight": 1.18,
    "tensor_forward": 1.0,
    "tensor_data": 1.0,
    "tensor_weight": 1.0,
}
"""Shares of the fp32 peak (direct FLOPs) by class and direction, and of the tile model's rate on
matrix units, where a device does not say its own. Source: V100 SXM2 in fp32, DeepBench
(baidu-research, commit da81ba7), 94 layers, least mean |log| error (24 %) beside 30 us a kernel and
bytes at 0.8 of the bandwidth."""
Measured = Mapping[str, tuple[tuple[float, ...], ...]]
"""Kind of kernel or collective -> measured points: coordinates, then measured over modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator (or CPU socket share) and how well kernels use it.

    `peak_flops` maps a precision (fp32 tf32 fp16 bf16 fp8 mxfp8 nvfp4) to dense FLOP/s.
    `sm_count` is the number of multiprocessors a GEMM's tiles are dealt to. The `gemm_*`
    constants are those of the tile model in `parsim/cost/kernel/gemm.py`, in this order: which
    tiles there are; share of the peak one block reaches; depth k that a block's prologue and
    epilogue are worth; launch; how much a partly full last wave costs; bytes/s through the
    cache to the multiprocessors and share of the memory bandwidth; launch of a split-K
    reduction; factor of accumulating into fp32; by how much kernels longer than
    `gemm_boost_time` slow down with the clock. `gemm_unaligned` and `gemm_odd` are the shares of
    the rate where rows start at multiples of 4 or 8 bytes, and of 2, instead of 16.
    `fp8_efficiency` is the share of its peak that a product of 8 bit or less reaches, over that of
    a 16-bit one, `fp16_efficiency` that of one in fp16 or bf16 over `gemm_efficiency`.
    `gemm_sustained` and
    `attention_sustained` are the shares of those rates that a training step sustains beside a
    benchmark (clocks, power, data). `attention_*_efficiency` holds for heads up to 128, times
    `attention_*_wide` beyond; the `*_tail` seconds are in `attention_time`. `grouped_*` are
    those of `grouped_gemm_time`, `convolution` of `convolution_time`, `kernel_latency` is the
    least time of a kernel. `calibrated` is True only for constants measured on a real device of
    this kind; otherwise they are the catalog's and predictions say so. `residuals` are a
    calibration's measured times over the constants' (see `parsim/cost/kernel/residuals.py`);
    `spreads`, `unmeasured` and `steps` say how sure it is, what it could not measure, and which
    runs were recorded (`parsim/cluster/evidence.py`).
    `power` are the watts that it is designed for (None: nobody says), `server_factor` those that a
    server is rated at over its devices'. `core_product` are the seconds of a CPU core's small
    product (fp32, 256 rows and columns) at its quickest while it was calibrated, by which a run
    tells how fast its cores are (None: nobody timed it).
    """

    id: str
    name: str
    memory: float
    memory_bandwidth: float
    peak_flops: Mapping[str, float]
    sm_count: int
    gemm_efficiency: float
    gemm_k_half: float
    gemm_latency: float
    gemm_wave_quantisation: float
    gemm_cache_bandwidth: float
    gemm_memory_efficiency: float
    gemm_split_latency: float
    memory_efficiency: float
    attention_forward_efficiency: float
    attention_backward_efficiency: float
    kernel_latency: float
    gemm_tiles: Tiles = "ampere"
    fp8_efficiency: float = 0.8
    fp16_efficiency: float = 1.0
    gemm_unaligned: float = 1.0
    gemm_odd: float = 1.0
    gemm_accumulate_factor: float = 1.0
    gemm_clock_drop: float = 1.0
    gemm_boost_time: float = 0.0
    gemm_sustained: float = 1.0
    attention_forward_wide: float = 1.0
    attention_backward_wide: float = 1.0
    attention_forward_latency: float = 0.0
    attention_backward_latency: float = 0.0
    attention_forward_floor: float = 0.0
    attention_backward_floor: float = 0.0
    attention_sustained: float = 1.0
    grouped_gemm_efficiency: float = 0.5
    grouped_weight_efficiency: float = 0.4
    grouped_gemm_latency: float = 3.6e-6
    grouped_gemm_floor: float = 4.6e-6
    grouped_gemm_tile: int = 128
    launch_factor: float = 1.0
    convolution: Mapping[str, float] = field(default_factory=dict)
    context_memory: float = 0.0
    power: float | None = None
    server_factor: float = 1.8
    core_product: float | None = None
    residuals: Measured = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[RecordedStep, ...] = ()
    calibrated: bool = False
    sources: Mapping[str, str] = field(default_factory=dict)

    def convolution_share(self, name: str) -> float:
        """Share of the rate that convolutions of a class and direction reach, `3x3_forward`."""
        return self.convolution.get(name, CONVOLUTION[name])

    @property
    def usable_memory(self) -> float:
        """Memory left for the training process beside the driver's context, bytes."""
        return self.memory - self.context_memory

    def peak(self, precision: str) -> float:
        """Dense peak FLOP/s in a precision.

        Raises:
            CatalogError: the device has no such precision.
        """
        if precision not in self.peak_flops:
            raise CatalogError(
                f"device {self.id} has no {precision} peak; allowed: {', '.join(self.peak_flops)}"
            )
        return self.peak_flops[precision]
