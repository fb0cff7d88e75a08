"""A model and a cluster so small that every plan can be listed and simulated one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import Plan, PlanSpace
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.rules.degrees import ZERO_STAGES


def with_memory(job: Job, memory: float) -> Job:
    """This job on devices with so many bytes beside the driver's context."""
    device = replace(job.device, memory=memory + job.context_memory)
    system = replace(job.system, device=device)
    return replace(job, cluster=replace(job.cluster, system=system))


def small_gpt(seq_len: int) -> TransformerSpec:
    """GPT of 6 layers with 4 heads, for sequences of such a length."""
    return replace(
        model_spec("gpt2"),
        num_layers=6,
        hidden_size=512,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=128,
        ffn_hidden_size=2048,
        seq_len=seq_len,
        positions=seq_len,
    )


@pytest.fixture(scope="session")
def job() -> Job:
    """A small GPT on 4 of the A100s of one node."""
    system = replace(load_catalog().system("dgx-a100"), devices_per_node=4)
    stack = software("megatron-2021")  # with every ZeRO stage
    stack = replace(stack, zero_stages=ZERO_STAGES, pipeline_zero_stages=ZERO_STAGES)
    return Job(
        model=build_transformer(small_gpt(256)),
        cluster=Cluster(system=system, num_nodes=1),
        software=stack,
    )


@pytest.fixture(scope="session")
def space() -> PlanSpace:
    """Everything, for 8 sequences a step; schedules that the stack lacks too."""
    common = Plan(precision="fp16", scatter_p2p=True)
    return PlanSpace(global_batch_size=8, schedule=SCHEDULE_NAMES, common=common)
