"""One accelerator, or a share of a CPU socket: its rates, and how well kernels use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from parsim.cluster.evidence import RecordedStep
from parsim.errors import CatalogError

Tiles = Literal["core", "ampere", "hopper", "blackwell"]
CONVOLUTION: Mapping[str, float] = {
    "window": 1.66,
    "1x1_forward": 0.93,
    "1x1_data": 0.89,
    "1x1_weight": 0.50,
    "1x1-strided_forward": 0.75,
    "1x1-strided_data": 0.40,
    "1x1-strided_weight": 0.45,
    "strided_forward": 0.85,
    "strided_data": 0.58,
    "strided_weight": 0.64,
    "other_forward": 1.09,
    "other_data": 1.39,
    "other_weight": 1.18,
    "early": 1.0,
    "early_window": 1.0,
    "early_forward": 1.0,
    "early_data": 1.0,
    "early_weight": 1.0,
    "tensor_forward": 1.0,
    "tensor_data": 1.0,
    "tensor_weight": 1.0,
}
"""Shares of the fp32 peak by class and direction, that of transformed products (`window`), what a
library reaches of these that is older than the device's kernels (`early`), and of the tile model's
rate on matrix units (`tensor`; of those, an older library `early_forward`, `early_data` and
`early_weight`), where a device does not say its own. Source: V100 SXM2 in
fp32, DeepBench (baidu-research, commit da81ba7), 94 layers, least mean |log| error beside 30 us a
kernel and bytes at 0.8 of the bandwidth; 102 times of 3x3 and 5x5 with cuDNN 7.6: 0.20."""
QUANTIZED_ATTENTION: tuple[str, ...] = tuple(
    f"{form}_{direction}{head}"
    for form in ("fp8", "mxfp8")
    for direction in ("forward", "backward")
    for head in ("", "_wide")
)
"""Kernels of attention in 8 bit: format, direction, and `_wide` for heads beyond 128."""
Measured = Mapping[str, tuple[tuple[float, ...], ...]]
"""Kind of kernel or collective -> measured points: coordinates, then measured over modelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator (or CPU socket share) and how well kernels use it.

    The formulas that take the constants are in `parsim/cost/kernel/`: `gemm_*` in `gemm.py`,
    `attention_*` in `flash.py`, `grouped_*` in `kernels.py`, `convolution` in `convolutions.py`.
    """

    # Its key in the catalog.
    id: str
    # What people call it.
    name: str
    # Bytes.
    memory: float
    # Bytes/s, reads and writes together.
    memory_bandwidth: float
    # Dense FLOP/s by precision: fp32, tf32, fp16, bf16, fp8, mxfp8, nvfp4, mxfp4.
    peak_flops: Mapping[str, float] = field(hash=False)
    # Multiprocessors, or matrix units, that a product's tiles are dealt to.
    sm_count: int
    # Share of the peak that blocks of a product reach.
    gemm_efficiency: float
    # Depth k that a block's prologue and epilogue are worth.
    gemm_k_half: float
    # Seconds of a product's launch.
    gemm_latency: float
    # How much a partly full last wave costs, 0 to 1 (1: as much as a full one).
    gemm_wave_quantisation: float
    # Bytes/s through the cache to all multiprocessors.
    gemm_cache_bandwidth: float
    # Share of the memory bandwidth that products reach.
    gemm_memory_efficiency: float
    # Seconds of the launch that sums the parts of a split-K product.
    gemm_split_latency: float
    # Share of the memory bandwidth that memory-bound kernels reach.
    memory_efficiency: float
    # Share of the peak that fused attention reaches with heads up to 128, forward.
    attention_forward_efficiency: float
    # Share of the peak that it reaches with them, backward.
    attention_backward_efficiency: float
    # Seconds that the shortest kernel takes.
    kernel_latency: float
    # Which tiles a product may be cut into (`TILINGS` of `parsim/cost/kernel/gemm.py`).
    gemm_tiles: Tiles = "ampere"
    # Share of its peak that a product of 8 bit or less reaches, over that of a 16-bit one.
    fp8_efficiency: float = 0.8
    # Share that one of 4 bit reaches, over `fp8_efficiency`.
    fp4_efficiency: float = 1.0
    # Share that one in fp16 or bf16 reaches, over `gemm_efficiency`.
    fp16_efficiency: float = 1.0
    # Share of a product's rate where rows start at multiples of 4 or 8 bytes instead of 16.
    gemm_unaligned: float = 1.0
    # Share of it where they start at multiples of 2 bytes.
    gemm_odd: float = 1.0
    # Times as long as a product takes that adds to fp32.
    gemm_accumulate_factor: float = 1.0
    # Factor on a lone product's seconds beyond `gemm_boost_time`, where the clock falls.
    gemm_clock_drop: float = 1.0
    # Seconds that a lone product runs at the boosted clock.
    gemm_boost_time: float = 0.0
    # Share of a product's rate in a benchmark that a training step sustains: clocks, power, data.
    gemm_sustained: float = 1.0
    # Keys of a query at which causal attention reaches half of its rate.
    attention_half_length: float = 300.0
    # Factor on `attention_forward_efficiency` of heads beyond 128.
    attention_forward_wide: float = 1.0
    # Factor on `attention_backward_efficiency` of heads beyond 128.
    attention_backward_wide: float = 1.0
    # Rates of attention in 8 bit over 16 bit, by `QUANTIZED_ATTENTION` (1 where none stands).
    quantized_attention: Mapping[str, float] = field(default_factory=dict, hash=False)
    # Seconds of a call of attention alone in a benchmark, forward.
    attention_forward_latency: float = 0.0
    # Seconds of a call of it there, backward.
    attention_backward_latency: float = 0.0
    # Seconds that such a call takes at least, forward.
    attention_forward_floor: float = 0.0
    # Seconds that such a call takes at least, backward.
    attention_backward_floor: float = 0.0
    # Share of attention's rate that a training step sustains.
    attention_sustained: float = 1.0
    # Share of the peak that products of experts reach (`grouped_gemm_time`).
    grouped_gemm_efficiency: float = 0.5
    # Share of the peak that their weight gradients reach.
    grouped_weight_efficiency: float = 0.4
    # Seconds that each expert's product adds.
    grouped_gemm_latency: float = 3.6e-6
    # Seconds that each expert's product takes at least, without these.
    grouped_gemm_floor: float = 4.6e-6
    # Rows of tokens that an expert's product is filled up to.
    grouped_gemm_tile: int = 128
    # Whether kernels that copy rows reach the memory's rate: no multiprocessors issue the copies.
    copies_at_memory_rate: bool = False
    # Whether cuDNN, where it has one, has kernels that keep a channel on the chip while they
    # normalise it.
    persistent_norms: bool = True
    # Factor on the software's seconds of a kernel's launch.
    launch_factor: float = 1.0
    # Shares of the rate that convolutions reach, by class and direction (empty: `CONVOLUTION`).
    convolution: Mapping[str, float] = field(default_factory=dict, hash=False)
    # Bytes of the driver's context, with the kernels that a run uses.
    context_memory: float = 0.0
    # Standard deviation of ln(time) of its kernels where no run of it or its kin is public, beyond
    # that of the devices whose runs are: their libraries are others.
    library_spread: float = 0.0
    # Watts that it is designed for (None: nobody says).
    power: float | None = None
    # Watts that a server is rated at over those of its devices.
    server_factor: float = 1.8
    # Seconds of a CPU core's small product (fp32, 256 rows and columns) at its quickest while it
    # was calibrated, by which a run tells how fast its cores are (None: nobody timed it).
    core_product: float | None = None
    # A calibration's measured times over the constants', by kind (`cost/kernel/residuals.py`).
    residuals: Measured = field(default_factory=dict, hash=False)
    # Standard deviation of ln(measured / modelled), by kind (`parsim/cluster/evidence.py`).
    spreads: Mapping[str, float] = field(default_factory=dict, hash=False)
    # What a calibration could not measure, and why.
    unmeasured: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Runs that were recorded on it.
    steps: tuple[RecordedStep, ...] = ()
    # Whether the constants were measured on a real device of this kind; otherwise they are the
    # catalog's, and predictions say so.
    calibrated: bool = False
    # Where each number comes from, by field.
    sources: Mapping[str, str] = field(default_factory=dict, hash=False)

    def convolution_share(self, name: str) -> float:
        """Share of the rate that convolutions of a class and direction reach, `3x3_forward`."""
        return self.convolution.get(name, CONVOLUTION[name])

    def attention_gain(self, form: str, *, backward: bool, wide: bool) -> float:
        """How much faster attention is in a format of 8 bit than in 16 bit; 1 if not measured."""
        direction = "backward" if backward else "forward"
        return self.quantized_attention.get(f"{form}_{direction}{'_wide' if wide else ''}", 1.0)

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
