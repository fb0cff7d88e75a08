"""Up-links of leaf groups that have too few of them narrow every kind of traffic.

Where each node is a leaf group of its own, an oversubscription of k leaves a node that sends with
all its interfaces 1 / k of them: about what interfaces of 1 / k of the rate would.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software, with_switches
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import CpCommType, Plan
from parsim.plan.stages import Stage
from parsim.plan.strategies import (
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    ParameterServer,
    Strategy,
)
from parsim.sim import simulate
from tests.parsim.sim.random_jobs import on

NARROW = 16.0
ROUNDING = 1e-9


def job(model: str, stack: str = "megatron-te-2025", dispatcher: str | None = None) -> Job:
    """Four nodes of a system."""
    used = software(stack)
    return Job(
        model=build_transformer(model_spec(model)),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=4),
        software=with_switches(used, {"expert_dispatcher": dispatcher}) if dispatcher else used,
    )


def narrowed(system: System, times: float, nodes_per_leaf: int = 1) -> System:
    """A system whose leaf groups have too few up-links."""
    network = system.network
    assert network is not None
    thin = replace(network, nodes_per_leaf=nodes_per_leaf, oversubscription=times)
    return replace(system, network=thin)


def slower(system: System, times: float) -> System:
    """A system with slower interfaces."""
    network = system.network
    assert network is not None
    return replace(system, network=replace(network, nic_bandwidth=network.nic_bandwidth / times))


def step(job: Job, plan: Plan, system: System) -> float:
    """Seconds of a step on another system."""
    return simulate(on(job, system), plan).step_time


def pipeline(schedule: str, chunks: int = 1) -> Plan:
    return Plan(pp=4, dp_replicate=8, num_microbatches=8, schedule=schedule, v=chunks)


def ring(how: CpCommType) -> Plan:
    return Plan(tp=8, cp=4, cp_comm_type=how, sequence_parallel=True, num_microbatches=2)


GPT, LLAMA, MIXTURE = job("gpt-1.7b"), job("llama3-8b"), "qwen3-30b-a3b"
EXPERTS = Plan(dp_shard=32, zero_stage=1, ep=32, num_microbatches=2)
TRAFFIC: dict[str, tuple[Job, Plan]] = {
    "gradients": (GPT, Plan(dp_replicate=32, num_microbatches=2)),
    "parameters": (GPT, Plan(dp_shard=32, zero_stage=3, num_microbatches=2)),
    "ring of keys": (LLAMA, ring(CpCommType.P2P)),
    "gathered keys": (LLAMA, ring(CpCommType.ALL_GATHER)),
    "heads": (job("llama2-7b"), ring(CpCommType.A2A)),
    "copies of tokens": (job(MIXTURE), EXPERTS),
    "DeepEP": (job(MIXTURE, dispatcher="deepep"), EXPERTS),
    "HybridEP": (job(MIXTURE, dispatcher="hybridep"), EXPERTS),
    "tied table": (job("gpt2-xl"), pipeline("1f1b")),
    "borders": (GPT, pipeline("zb_v", 2)),
    "evicted activations": (GPT, pipeline("bpipe")),
    "copies of stages": (GPT, pipeline("chimera")),
    "copies of stages of both ways": (GPT, pipeline("dualpipe")),
    "stages of many replicas": (
        GPT,
        Plan(
            pp=2,
            num_microbatches=24,
            stages=(Stage(layers=12, replicas=24), Stage(layers=12, replicas=8)),
        ),
    ),
}

STRATEGIES: tuple[tuple[Strategy, float], ...] = (
    (ParameterServer(servers=4), 0.99),
    (ParameterServer(on="devices", servers=32), 0.99),
    (AsynchronousServer(servers=4, updates=20), 0.9),
    (AsynchronousGossip(updates=20), 0.7),
    (Gossip(topology="exponential"), 0.5),  # peers of half its steps are in the node
    (Gossip(topology="ring"), 0.2),  # two of a node's eight workers send to another one
    (DiLoCo(every=5), 0.99),
)
"""Strategies, and which part of the step with slower interfaces the one with few up-links takes."""


@pytest.mark.parametrize("name", TRAFFIC)
def test_few_up_links_cost_as_much_as_slow_interfaces(name: str) -> None:
    where, plan = TRAFFIC[name]
    full = step(where, plan, where.system)
    narrow = step(where, plan, narrowed(where.system, NARROW))
    assert narrow == pytest.approx(step(where, plan, slower(where.system, NARROW)), rel=0.01)
    assert narrow > 1.1 * full


@pytest.mark.parametrize(("strategy", "part"), STRATEGIES, ids=lambda case: str(case))
def test_few_up_links_cost_strategies_nearly_as_much(strategy: Strategy, part: float) -> None:
    where = job("gpt-1.7b", "pytorch-ddp")
    plan = Plan(dp_replicate=32, num_microbatches=1, precision="bf16_amp", strategy=strategy)
    narrow = step(where, plan, narrowed(where.system, NARROW))
    assert narrow > 1.5 * step(where, plan, where.system)
    slow = step(where, plan, slower(where.system, NARROW))
    assert part * slow <= narrow <= slow * (1.0 + ROUNDING)


@pytest.mark.parametrize("nodes_per_leaf", [1, 2, 4])
@pytest.mark.parametrize("name", [*TRAFFIC, *(str(case) for case, _ in STRATEGIES)])
def test_fewer_up_links_are_never_faster(name: str, nodes_per_leaf: int) -> None:
    known = {str(case): case for case, _ in STRATEGIES}
    where, plan = TRAFFIC.get(name) or (
        job("gpt-1.7b", "pytorch-ddp"),
        Plan(dp_replicate=32, num_microbatches=1, precision="bf16_amp", strategy=known[name]),
    )
    times = [
        step(where, plan, narrowed(where.system, over, nodes_per_leaf)) for over in (1.0, 4.0, 64.0)
    ]
    assert all(after >= before * (1.0 - ROUNDING) for before, after in pairwise(times))
    whole = nodes_per_leaf == 4  # all nodes are in one leaf group
    assert times[-1] == pytest.approx(times[0]) if whole else times[-1] > 1.1 * times[0]
