"""Small jobs on clusters of several kinds of node, for the tests."""

from __future__ import annotations

from dataclasses import replace

from parsim.cluster.groups import mixed_cluster
from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, Recompute

PER_NODE = 2
INSIDE = ("dp_replicate", "dp_shard", "pp", "cp", "tp")
"""Axes with the pipeline inside: each replica on nodes of its own."""

ONE = Plan(tp=1, pp=2, dp_replicate=4, num_microbatches=8, microbatch_size=1, overlap_p2p=True)
BY_REPLICA = replace(ONE, rank_order=INSIDE)
PLANS = {
    "stages": ONE,
    "replicas": BY_REPLICA,
    "uneven": replace(BY_REPLICA, replica_microbatches=(12, 10, 6, 4), num_microbatches=12),
    "cut": replace(ONE, stage_layers=(5, 3)),
    "tp": replace(ONE, tp=2, dp_replicate=2, sequence_parallel=True),
    "tp across kinds": replace(ONE, tp=8, pp=1, dp_replicate=1),
    "zero1": replace(BY_REPLICA, zero_stage=1, dp_replicate=1, dp_shard=4),
    "zero2": replace(BY_REPLICA, zero_stage=2, dp_replicate=1, dp_shard=4),
    "zero3": replace(BY_REPLICA, zero_stage=3, dp_replicate=1, dp_shard=4),
    "hsdp": replace(BY_REPLICA, zero_stage=3, dp_replicate=2, dp_shard=2),
    "hsdp uneven": replace(
        BY_REPLICA,
        zero_stage=3,
        dp_replicate=2,
        dp_shard=2,
        replica_microbatches=(12, 12, 4, 4),
        num_microbatches=12,
    ),
    "interleaved": replace(BY_REPLICA, schedule="interleaved_1f1b", v=2),
    "blocking": replace(BY_REPLICA, overlap_p2p=False, overlap_grad_reduce=False),
    "gpipe": replace(BY_REPLICA, schedule="gpipe", recompute=Recompute.FULL),
    "zb_h1": replace(BY_REPLICA, schedule="zb_h1"),
    "zb_v": replace(BY_REPLICA, schedule="zb_v", v=2),
    "no pipeline": replace(ONE, pp=1, dp_replicate=8),
    "cp": replace(ONE, pp=2, dp_replicate=2, cp=2),
}


def node(name: str, devices: int = PER_NODE) -> System:
    """A system of the catalog with few devices in a node."""
    return replace(load_catalog().system(name), devices_per_node=devices)


def cluster_of(**groups: tuple[System, int]) -> Cluster:
    """Groups of nodes by their names."""
    return mixed_cluster(
        [NodeGroup(name=name, system=system, num_nodes=n) for name, (system, n) in groups.items()]
    )


def fast_and_slow(fast: int = 2, slow: int = 2) -> Cluster:
    """So many nodes of two H100s and of two A100s."""
    return cluster_of(fast=(node("dgx-h100"), fast), slow=(node("dgx-a100"), slow))


def job_on(cluster: Cluster, stack: str = "megatron-te-2025", layers: int = 8) -> Job:
    """A GPT of 8 layers, wide enough that kernels and not launches take the time."""
    spec = replace(
        model_spec("gpt2"),
        num_layers=layers,
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=128,
        ffn_hidden_size=16384,
        seq_len=2048,
        positions=2048,
    )
    return Job(model=build_transformer(spec), cluster=cluster, software=software(stack))


def slower(system: System, times: float) -> System:
    """This node with devices that take so many times as long for everything."""
    device = system.device
    peaks = {name: peak / times for name, peak in device.peak_flops.items()}
    other = replace(
        device,
        peak_flops=peaks,
        memory_bandwidth=device.memory_bandwidth / times,
        gemm_cache_bandwidth=device.gemm_cache_bandwidth / times,
    )
    return replace(system, device=other)


def narrower(system: System, times: float) -> System:
    """This node with slower network interfaces."""
    assert system.network is not None
    rate = system.network.nic_bandwidth / times
    return replace(system, network=replace(system.network, nic_bandwidth=rate))
