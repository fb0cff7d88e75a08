"""Which fields a device or a system has in a file, and their kinds; numbers' kinds have limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from parsim.cluster.hardware import CONVOLUTION, QUANTIZED_ATTENTION

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "mxfp4")
REMOVED = {"gemm_wave_loss": "gemm_wave_quantisation (0 to 1, see parsim/cost/kernel/gemm.py)"}
"""Fields of older files, and what stands for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a number of some kind can be, and what to check where it is not.

    `low` and `high` are allowed themselves, but for a `low` that the number must be `above`.
    """

    low: float = 0.0
    high: float = inf
    above: bool = False
    advice: str = ""

    def allow(self, value: float) -> bool:
        """Whether a number is within them."""
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def words(self, unit: str = "") -> str:
        """What is allowed, in words, for a message: "above 0 and at most 1.3 (...)"."""
        low, high = f"{self.low:g}{unit}", f"{self.high:g}{unit}"
        if self.above:
            ends = f"above {low}" if self.high == inf else f"above {low} and at most {high}"
        else:
            ends = f"at least {low}" if self.high == inf else f"from {low} to {high}"
        return f"{ends} ({self.advice})" if self.advice else ends


LIMITS: Final[Mapping[str, Limits]] = {
    "amount": Limits(),
    "share": Limits(above=True),
    # Parts boost above the clock that their peak is quoted at: a fit to H100 products found 1.10.
    "efficiency": Limits(
        above=True, high=1.3, advice="no kernel or transfer reaches more; check the peak or rate"
    ),
    "part": Limits(high=1.0),
    "drop": Limits(low=1.0),
    # Times by which a leaf's nodes may outrun its up-links; real fabrics have 1 to 16.
    "ratio": Limits(low=1.0, high=1000.0),
    # By what share work may be longer beside that of others that share its memory or link.
    "slowing": Limits(high=8.0),
    # Seconds of a latency or a call's overhead; real ones are microseconds.
    "latency": Limits(high=1.0),
    "capacity": Limits(above=True),
    "bandwidth": Limits(above=True),
    "interface": Limits(above=True),  # the bandwidth of one to the network
    "flops": Limits(above=True),
    "power": Limits(above=True),
}
"""What numbers of each kind can be, in SI units; kinds without an entry have their unit's limits.
"""

# field -> kind: one of LIMITS, or "count", an integer of 1 or more, "bytes" and "time" of any size,
# or what is no number.
DEVICE_FIELDS: Mapping[str, str] = {
    "name": "text",
    "memory": "capacity",
    "memory_bandwidth": "bandwidth",
    **{f"peak_flops.{precision}": "flops" for precision in PRECISIONS},
    "sm_count": "count",
    "gemm_tiles": "tiles",
    "gemm_efficiency": "efficiency",
    "gemm_k_half": "amount",
    "gemm_latency": "latency",
    "gemm_wave_quantisation": "part",
    "gemm_cache_bandwidth": "bandwidth",
    "gemm_memory_efficiency": "efficiency",
    "gemm_split_latency": "latency",
    "gemm_unaligned": "share",
    "gemm_odd": "share",
    "gemm_accumulate_factor": "share",
    "gemm_clock_drop": "drop",
    "gemm_boost_time": "time",
    "gemm_sustained": "efficiency",
    "memory_efficiency": "efficiency",
    "attention_forward_efficiency": "efficiency",
    "attention_forward_wide": "efficiency",
    "attention_forward_latency": "latency",
    "attention_forward_floor": "time",
    "attention_backward_efficiency": "efficiency",
    "attention_backward_wide": "efficiency",
    "attention_backward_latency": "latency",
    "attention_backward_floor": "time",
    "attention_sustained": "efficiency",
    "attention_half_length": "amount",
    **{f"quantized_attention.{name}": "share" for name in QUANTIZED_ATTENTION},
    "grouped_gemm_efficiency": "efficiency",
    "grouped_weight_efficiency": "efficiency",
    "grouped_gemm_latency": "latency",
    "grouped_gemm_floor": "time",
    "grouped_gemm_tile": "count",
    "copies_at_memory_rate": "flag",
    "persistent_norms": "flag",
    "kernel_latency": "latency",
    "fp8_efficiency": "efficiency",
    "fp4_efficiency": "efficiency",
    "fp16_efficiency": "efficiency",
    "launch_factor": "amount",
    **{f"convolution.{name}": "share" for name in CONVOLUTION},
    "context_memory": "bytes",
    "library_spread": "part",
    "power": "power",
    "server_factor": "drop",
    "core_product": "time",
    "residuals": "residuals",
    "spreads": "spreads",
    "unmeasured": "unmeasured",
    "steps": "recorded steps",
    "calibrated": "flag",
}
SYSTEM_FIELDS: Mapping[str, str] = {
    "name": "text",
    "device": "text",
    "devices_per_node": "count",
    "devices_per_host": "count",
    "host_bandwidth": "bandwidth",
    "host_memory": "capacity",
    "intra.fabric": "fabric",
    "intra.bandwidth": "bandwidth",
    "intra.latency": "latency",
    "intra.efficiency": "efficiency",
    "intra.nvls": "flag",
    "intra.generation": "generation",
    "intra.c2c_bandwidth": "bandwidth",
    "intra.torus": "count",
    "network.nics_per_node": "count",
    "network.nic_bandwidth": "interface",
    "network.latency": "latency",
    "network.efficiency": "efficiency",
    "network.oversubscription": "ratio",
    "network.nodes_per_leaf": "count",
    "network.sharp": "flag",
    "network.fabric": "network fabric",
    "network.rails": "count",
    "network.spines": "count",
    "call_overhead": "latency",
    "call_overhead_per_rank": "latency",
    "straggler_spread": "amount",
    "channels": "count",
    "interference": "part",
    "interference_rate": "bandwidth",
    "message_interference": "part",
    "rank_spread": "part",
    "memory_contention": "slowing",
    "two_way_loss": "slowing",
    "library": "library",
    "tuner": "tuner",
    "curves": "curves",
    "topology": "cables",
    "residuals": "residuals",
    "calibrated": "flag",
}
FIELDS: Mapping[str, Mapping[str, str]] = {"devices": DEVICE_FIELDS, "systems": SYSTEM_FIELDS}
