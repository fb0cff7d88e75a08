"""Clusters of `same_numbers`: mixed nodes, networks, jitter, every system, jobs beside."""

from __future__ import annotations

from collections.abc import Iterable

from tests.tools.same_numbers.case import SYSTEMS, Case, scenario, settings
from tests.tools.same_numbers.group import (
    EVENTS,
    HYBRID,
    JITTER,
    L8,
    L70,
    LINKS,
    MIXED,
    PLAIN,
    QWEN,
    SEARCH,
    SHARED,
    SIXTEEN,
    TEXT,
    TRACE,
    Group,
)

REPLICAS = (
    "plan.rank_order=[dp_replicate,dp_shard,pp,cp,tp] plan.pp=2 plan.dp=2 plan.stage_layers=null"
)
UNEVEN = {
    "replicas": f"{REPLICAS} plan.replica_microbatches=[45,19]",
    "replicas-even": REPLICAS,
    **{f"replicas-zero{n}": f"{REPLICAS} plan.zero_stage={n}" for n in (1, 2, 3)},
    "replicas-zero1-uneven": f"{REPLICAS} plan.zero_stage=1 plan.replica_microbatches=[45,19]",
    "replicas-late": f"{REPLICAS} plan.replica_microbatches=[45,19] plan.overlap_grad_reduce=false",
    "inside": "plan.pp=2 plan.dp=2 plan.stage_layers=[52,28]",
    **{
        f"inside-zero{n}": f"plan.pp=2 plan.dp=2 plan.stage_layers=[52,28] plan.zero_stage={n}"
        for n in (1, 2, 3)
    },
    "slow-first": "plan.node_order=[slow,fast] plan.stage_layers=[12,12,28,28]",
    "even": "plan.stage_layers=[20,20,20,20]",
    "gpipe": "plan.schedule=gpipe",
    "interleaved": "plan.schedule=interleaved_1f1b plan.v=2 plan.stage_layers=null",
    **{name: f"plan.schedule={name}" for name in ("zb_h1", "zb_2p", "zb_auto")},
    "zb_v": "plan.schedule=zb_v plan.stage_layers=null",
    "selective": "plan.recompute=selective",
    "p2p": "plan.overlap_p2p=true plan.scatter_p2p=true",
    "tp4": "plan.tp=4 plan.dp=2",
    "tp4-cp2": "plan.tp=4 plan.cp=2",
    "small-memory": "cluster.groups.slow.device=a100-sxm-40gb",
    "small-memory-even": "cluster.groups.slow.device=a100-sxm-40gb plan.stage_layers=[20,20,20,20]",
    "thin": "cluster.groups.slow.network.nic_bandwidth=10Gb/s",
    "fewer": "cluster.groups.slow.devices_per_node=4",
    "failed": "cluster.failed=[nic:3.0]",
    "placement": f"cluster.placement={list(range(32))[::-1]}",
    "slow-rank": "jitter.slow_ranks={3: 1.2}",
    "slow-rank-zero3": f"{REPLICAS} plan.zero_stage=3 jitter.slow_ranks={{3: 1.2}}",
    "precision": "training.precision=bf16_amp",
}
MIXED_GROUPS = (
    Group(
        name="mixed",
        of=MIXED,
        variants=UNEVEN,
        forms=(PLAIN, LINKS, EVENTS, JITTER, TEXT, TRACE),
        quick=("replicas", "replicas-zero3", "inside-zero1", "slow-first", "zb_v", "thin"),
        seconds=1.0,
    ),
    Group(
        name="mixed-search",
        of=MIXED,
        base="search.zero_stage=[0,1,2,3] training.global_batch_size=16",
        variants={
            "zero": "",
            "schedules": "search.schedule=[1f1b, gpipe, interleaved_1f1b] search.v=[1,2]",
            "tp": "search.tp=[4,8] search.recompute=[selective, full]",
        },
        forms=(SEARCH,),
        quick=("zero",),
        seconds=3.0,
    ),
    Group(
        name="uneven",
        of=L70,
        variants={
            "layers": "plan.v=1 plan.schedule=1f1b plan.stage_layers=[22,20,20,18]",
            "microbatches": "plan.dp=2 plan.tp=8 plan.zero_stage=0 plan.v=1 plan.schedule=1f1b "
            "plan.replica_microbatches=[70,58]",
            "microbatches-zero1": "plan.dp=2 plan.tp=8 plan.v=1 plan.schedule=1f1b "
            "plan.replica_microbatches=[70,58]",
            "empty": "plan.v=1 plan.schedule=1f1b plan.stage_layers=[30,20,30,0]",
        },
        forms=(PLAIN, LINKS, JITTER),
        quick=("microbatches",),
    ),
)

NETWORKS = {
    **{
        fabric: f"cluster.network.fabric={fabric}"
        for fabric in ("rail-optimised", "fat-tree", "ring", "torus-2d", "torus-3d", "dragonfly")
    },
    "rails4": "cluster.network.rails=4",
    "spines": "cluster.network.spines=2 cluster.network.nodes_per_leaf=2",
    "leaf2": "cluster.network.nodes_per_leaf=2",
    "leaf2-thin": "cluster.network.nodes_per_leaf=2 cluster.network.oversubscription=16",
    "sharp": "cluster.network.sharp=true",
    "one-nic": "cluster.network.nics_per_node=1",
    "far": "cluster.network.latency=50us cluster.network.efficiency=0.5",
    "failed": "cluster.failed=[nic:0.3]",
    "failed-two": "cluster.failed=[nic:0.3, nic:1.0]",
    "reversed": f"cluster.placement={list(range(32))[::-1]}",
    "half": "cluster.devices_per_node=4 plan={tp: 4, dp: 4}",
    "no-nvls": "cluster.intra.nvls=false",
    "pcie": "cluster.intra.fabric=pcie cluster.intra.bandwidth=32GB/s",
    "slow-rank": "jitter.slow_ranks={3: 1.5, 17: 1.1}",
    "quiet": "background=null",
    "host-copy": "background.streams.offload={from: devices, to: hosts, rate: 2GB/s}",
    "often": "background.streams.checkpoint={from: devices, to: storage, size: 2.6GB, every: 1}",
    "zero3": "plan={dp: 32, zero_stage: 3}",
    "pipeline": "plan={tp: 2, pp: 4, dp: 4, zero_stage: 1, schedule: interleaved_1f1b, v: 2}",
    "h100": "cluster.system=dgx-h100 software=nemo",
    "l40s": "cluster.system=l40s-node plan={tp: 2, pp: 2, dp: 4}",
}
JITTERS = {
    "none": "jitter={noise: 0, speed_spread: 0, hiccups: 0}",
    "noise": "jitter.noise=0.1",
    "speed": "jitter.speed_spread=0.05 jitter.clusters=3",
    "hiccups": "jitter.hiccups=2 jitter.hiccup_length=3ms",
    "slow": "jitter.slow_ranks={0: 1.3, 5: 1.1}",
}
NETWORK_GROUPS = (
    Group(
        name="network",
        of=SHARED,
        variants=NETWORKS,
        forms=(PLAIN, LINKS, JITTER),
        quick=("leaf2-thin", "torus-2d", "dragonfly", "failed", "host-copy", "pipeline"),
        seconds=1.0,
    ),
    *(
        Group(
            name=f"jitter-{name}",
            of=of,
            base=base,
            variants=JITTERS,
            forms=(JITTER, TEXT),
            quick=("hiccups",) if name == "pipeline" else (),
        )
        for name, of, base in (
            ("pipeline", L8, f"{SIXTEEN} {HYBRID}"),
            ("fsdp", L8, ""),
            ("experts", QWEN, "training.global_batch_size=64"),
        )
    ),
)

OTHERS = tuple(system for system in SYSTEMS if system != "cpu")
SYSTEM_GROUPS = (
    Group(
        name="one-node",
        of="gpt2-small-cpu",
        base="model={name: gpt-1.7b} software=generic training.precision=fp16 "
        "training.global_batch_size=144",
        variants={
            system: f"cluster={{system: {system}, nodes: 1}} plan={{microbatch_size: 1}}"
            for system in OTHERS
        },
        quick=("gb200-nvl72", "rtx-4090-node"),
    ),
    Group(
        name="four-nodes",
        of="gpt2-small-cpu",
        base="model={name: gpt-7.5b} software=megatron-lm training.precision=fp16 "
        "training.global_batch_size=288",
        variants={
            system: f"cluster={{system: {system}, nodes: 4}} plan={{tp: 2, pp: 2, zero_stage: 1}}"
            for system in OTHERS
        },
        quick=("dgx-1v",),
        seconds=1.0,
    ),
)

BESIDE = {
    "apart": "{in}/two-nodes.yaml --beside {in}/two-nodes.yaml",
    "interleaved": "{in}/two-nodes.yaml --on 0,2 --beside {in}/two-nodes.yaml@1,3",
    "rest": "{in}/two-nodes.yaml --beside {in}/two-nodes.yaml@0-1",
    "mixed": f"{scenario(MIXED)} --on 0-1,4-5 --beside {scenario(L8)}@2 "
    "--beside {in}/two-nodes.yaml@6-7",
    "mixed-twice": "{in}/half-slow.yaml --on 0,3 --beside {in}/half-slow.yaml@1,2",
    "kinds": f"{scenario(MIXED)} --beside {scenario(MIXED)}",
    "shared": f"{scenario(SHARED)} --on 0,2,4,6 --beside {scenario(SHARED)}@1,3,5,7",
    "wrong": f"{{in}}/two-nodes.yaml --on 0-1 --beside {scenario(L8)}@1",
    "too-few": "{in}/two-nodes.yaml --on 0-1 --beside {in}/two-nodes.yaml@1-2",
}
"""Jobs on one fabric."""

STREAMS = settings(
    "background.storage_bandwidth=20GB/s "
    "background.streams.checkpoint={from: devices, to: storage, size: 2GB, every: 50}"
)
CLUSTER_GROUPS = (*MIXED_GROUPS, *NETWORK_GROUPS, *SYSTEM_GROUPS)


def beside_cases() -> Iterable[Case]:
    """Several jobs on one fabric: alone, with a slow rank, with checkpoints, and as a trace."""
    for name, text in BESIDE.items():
        words = tuple(text.split())
        commands = {
            "json": ("simulate", *words, "--json"),
            "text": ("simulate", *words),
            "slow": ("simulate", *words, "--json", "--set", "jitter.slow_ranks={3: 1.5}"),
            "streams": ("simulate", *words, "--json", *STREAMS),
            "trace": ("timeline", *words, "-o", "{out}/trace.json"),
        }
        quick = name in ("interleaved", "mixed", "mixed-twice")
        yield Case(id=f"beside/{name}", commands=commands, quick=quick, seconds=2.0)
