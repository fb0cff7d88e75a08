"""Small jobs on clusters of several kinds of node, for the tests."""

from __future__ import annotations

from dataclasses import replace

from parsim.cluster.hardware import Cluster, NodeGroup, System
from parsim.cluster.mixed import mixed_cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer

PER_NODE = 2
INSIDE = ("dp_replicate", "dp_shard", "pp", "cp", "tp")
"""Axes with the pipeline inside: each replica on nodes of its own."""


def node(name: str, devices: int = PER_NODE) -> System:
    """A system of the catalog with few devices in a node."""
    return replace(load_catalog().system(name), devices_per_node=devices)


def cluster_of(**groups: tuple[System, int]) -> Cluster:
    """Groups of nodes by their names."""
    return mixed_cluster(
        [NodeGroup(name=name, system=one, num_nodes=n) for name, (one, n) in groups.items()]
    )


def fast_and_slow(fast: int = 2, slow: int = 2) -> Cluster:
    """So many nodes of two H100s and of two A100s."""
    return cluster_of(fast=(node("dgx-h100"), fast), slow=(node("dgx-a100"), slow))


def job_on(cluster: Cluster, stack: str = "megatron-te-2025", layers: int = 8) -> Job:
    """A GPT of 8 layers, wide enough that kernels and not launches take the time."""
    spec = replace(
        model_spec("gpt2"), num_layers=layers, hidden_size=4096, num_attention_heads=32,
        num_key_value_heads=32, head_dim=128, ffn_hidden_size=16384, seq_len=2048, positions=2048,
    )  # fmt: skip
    return Job(model=build_transformer(spec), cluster=cluster, software=software(stack))


def slower(system: System, times: float) -> System:
    """The same node with devices that take so many times as long for everything."""
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
    """The same node with slower network interfaces."""
    assert system.network is not None
    rate = system.network.nic_bandwidth / times
    return replace(system, network=replace(system.network, nic_bandwidth=rate))
