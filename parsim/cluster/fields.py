"""Which fields a device or a system has in a file, their kinds, and what no device can be."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.cluster.hardware import CONVOLUTION

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
REMOVED = {"gemm_wave_loss": "gemm_wave_quantisation (0 to 1, see parsim/cost/kernel/gemm.py)"}
"""Fields of older files, and what stands for them."""

# field -> kind. "capacity" is a size above 0, "interface" the bandwidth of one to the network,
# "count" an integer of 1 or more, "share" a number above 0, "efficiency" a share of at most
# MOST_EFFICIENCY, "part" a number from 0 to 1, "drop" a factor of 1 or more, "amount" 0 or more.
DEVICE_FIELDS: Mapping[str, str] = {
    "name": "text",
    "memory": "capacity",
    "memory_bandwidth": "bandwidth",
    **{f"peak_flops.{precision}": "flops" for precision in PRECISIONS},
    "sm_count": "count",
    "gemm_tiles": "tiles",
    "gemm_efficiency": "efficiency",
    "gemm_k_half": "amount",
    "gemm_latency": "time",
    "gemm_wave_quantisation": "part",
    "gemm_cache_bandwidth": "bandwidth",
    "gemm_memory_efficiency": "efficiency",
    "gemm_split_latency": "time",
    "gemm_unaligned": "share",
    "gemm_odd": "share",
    "gemm_accumulate_factor": "share",
    "gemm_clock_drop": "drop",
    "gemm_boost_time": "time",
    "gemm_sustained": "efficiency",
    "memory_efficiency": "efficiency",
    "attention_forward_efficiency": "efficiency",
    "attention_forward_wide": "efficiency",
    "attention_forward_latency": "time",
    "attention_forward_floor": "time",
    "attention_backward_efficiency": "efficiency",
    "attention_backward_wide": "efficiency",
    "attention_backward_latency": "time",
    "attention_backward_floor": "time",
    "attention_sustained": "efficiency",
    "attention_half_length": "amount",
    "grouped_gemm_efficiency": "efficiency",
    "grouped_weight_efficiency": "efficiency",
    "grouped_gemm_latency": "time",
    "grouped_gemm_floor": "time",
    "grouped_gemm_tile": "count",
    "kernel_latency": "time",
    "fp8_efficiency": "share",
    "fp4_efficiency": "share",
    "fp16_efficiency": "share",
    "launch_factor": "amount",
    **{f"convolution.{name}": "share" for name in CONVOLUTION},
    "context_memory": "bytes",
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
    "host_memory": "bytes",
    "intra.fabric": "fabric",
    "intra.bandwidth": "bandwidth",
    "intra.latency": "time",
    "intra.efficiency": "share",
    "intra.nvls": "flag",
    "intra.generation": "generation",
    "intra.c2c_bandwidth": "bandwidth",
    "network.nics_per_node": "count",
    "network.nic_bandwidth": "interface",
    "network.latency": "time",
    "network.efficiency": "share",
    "network.oversubscription": "share",
    "network.nodes_per_leaf": "count",
    "network.sharp": "flag",
    "network.fabric": "network fabric",
    "network.rails": "count",
    "network.spines": "count",
    "call_overhead": "time",
    "call_overhead_per_rank": "time",
    "straggler_spread": "amount",
    "channels": "count",
    "interference": "amount",
    "interference_rate": "bandwidth",
    "message_interference": "amount",
    "rank_spread": "amount",
    "memory_contention": "amount",
    "two_way_loss": "amount",
    "library": "library",
    "tuner": "tuner",
    "curves": "curves",
    "topology": "cables",
    "residuals": "residuals",
    "calibrated": "flag",
}
FIELDS: Mapping[str, Mapping[str, str]] = {"devices": DEVICE_FIELDS, "systems": SYSTEM_FIELDS}


MOST_EFFICIENCY = 1.3
"""Share of the quoted rate that a kernel may reach: parts boost above the clock their peak is
quoted at (a fit to H100 products found 1.10); beyond this the peak or the measurement is wrong."""
LONGEST = 1.0
"""Seconds that a latency or a call's overhead may have; real ones are microseconds."""

MOST_CONTENTION = 8.0
"""By what share an update may be longer beside those of other devices that share its memory."""

MOST_OVERSUBSCRIBED = 1000.0
"""Times by which a leaf's nodes may outrun its up-links; real fabrics have 1 to 16."""


def check_plausible(field: str, value: object) -> None:
    """Refuse an impossible number in a field of a device or a system.

    Raises:
        ValueError: what is wrong with it and what is allowed.
    """
    if not isinstance(value, float):
        return
    if field.endswith("efficiency") and value > MOST_EFFICIENCY:
        raise ValueError(
            f"{value:g} is more than any kernel or transfer reaches; allowed: above 0, at most "
            f"{MOST_EFFICIENCY:g} (check the peak or bandwidth that it is a share of)"
        )
    if field.endswith(("latency", "overhead", "per_rank")) and not 0.0 <= value <= LONGEST:
        raise ValueError(f"{value:g} s cannot be; allowed: 0 s to {LONGEST:g} s")
    if field == "oversubscription" and value > MOST_OVERSUBSCRIBED:
        raise ValueError(f"{value:g} cannot be; allowed: 1 to {MOST_OVERSUBSCRIBED:g}")
    if field == "rank_spread" and value > 1.0:
        raise ValueError(f"{value:g} is more than a rank's whole time; allowed: 0 to 1")
    if field in ("memory_contention", "two_way_loss") and value > MOST_CONTENTION:
        raise ValueError(f"{value:g} cannot be; allowed: 0 to {MOST_CONTENTION:g}")
    if field in ("interference", "message_interference") and value > 1.0:
        raise ValueError(f"{value:g} is more than all of the time; allowed: 0 to 1")
