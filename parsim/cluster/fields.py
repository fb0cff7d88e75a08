"""Which fields a device or a system has in a catalog file, and the kind of each value."""

from __future__ import annotations

from collections.abc import Mapping

from parsim.cluster.hardware import (
    CONVOLUTION,
)

PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4")
REMOVED = {"gemm_wave_loss": "gemm_wave_quantisation (0 to 1, see parsim/cost/kernel/gemm.py)"}
"""Fields of older files, and what stands for them."""

# field -> kind. "capacity" is a size above 0, "count" an integer of 1 or more, "share" a number
# above 0, "efficiency" a share of at most MOST (some parts boost above the clock their peak is
# quoted at), "part" a number from 0 to 1, "drop" a factor of 1 or more, "amount" 0 or more.
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
    "grouped_gemm_efficiency": "efficiency",
    "grouped_weight_efficiency": "efficiency",
    "grouped_gemm_latency": "time",
    "grouped_gemm_floor": "time",
    "grouped_gemm_tile": "count",
    "kernel_latency": "time",
    "fp8_efficiency": "share",
    "fp16_efficiency": "share",
    "launch_factor": "amount",
    **{f"convolution.{name}": "share" for name in CONVOLUTION},
    "context_memory": "bytes",
    "power": "power",
    "server_factor": "drop",
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
    "network.nic_bandwidth": "bandwidth",
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
    "rank_spread": "amount",
    "memory_contention": "amount",
    "library": "library",
    "tuner": "tuner",
    "curves": "curves",
    "topology": "cables",
    "residuals": "residuals",
    "calibrated": "flag",
}
FIELDS: Mapping[str, Mapping[str, str]] = {"devices": DEVICE_FIELDS, "systems": SYSTEM_FIELDS}
