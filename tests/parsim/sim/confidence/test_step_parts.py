"""Which parts of a step are hard to predict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan
from parsim.sim import simulate
from parsim.sim.confidence.step_parts import Parts


def parts(plan: Plan, seq_len: int = 1024, launch: float = 1.0, model: str = "gpt2") -> Parts:
    made = build_transformer(replace(model_spec(model), seq_len=seq_len))
    stack = software("megatron-2022")
    stack = replace(stack, launch_cost=stack.launch_cost * launch)
    system = replace(load_catalog().system("dgx-a100"), devices_per_node=plan.world_size)
    cluster = Cluster(system=system, num_nodes=1)
    return simulate(Job(model=made, cluster=cluster, software=stack), plan).standing.parts


def test_one_rank_exchanges_nothing() -> None:
    result = parts(Plan(microbatch_size=8))
    assert result.exchange == result.skew == 0.0
    assert result.quantized == 0.0


def test_the_host_share_is_of_the_host_and_the_device() -> None:
    result = [parts(Plan(microbatch_size=8), launch=factor).host for factor in (1.0, 2.0)]
    odds = [share / (1.0 - share) for share in result]
    assert odds[1] == pytest.approx(2.0 * odds[0])


def test_what_paces_a_step_is_the_slower_of_both() -> None:
    assert Parts(host=0.5).paced == pytest.approx(0.5)
    assert Parts(host=0.75).paced > 0.999
    assert Parts(host=0.25).paced < 0.001


def test_tensor_parallel_ranks_wait_for_one_another() -> None:
    result = parts(Plan(tp=4, microbatch_size=8))
    assert result.within > 0.0
    assert result.skew == result.host * result.within


def test_replicas_exchange_after_the_last_backward() -> None:
    result = parts(Plan(dp_replicate=8, microbatch_size=8))
    assert result.after > 0.0
    assert result.within == 0.0


def test_memory_presses_near_its_limit_only() -> None:
    small, large = (parts(Plan(microbatch_size=batch)) for batch in (1, 4096))
    assert small.pressed == 0.0
    assert large.pressed == 1.0


def test_eight_bit_products() -> None:
    made = build_transformer(model_spec("gpt2"))
    system = replace(load_catalog().system("dgx-h100"), devices_per_node=1)
    cluster = Cluster(system=system, num_nodes=1)
    known = Job(model=made, cluster=cluster, software=software("nemo"))
    assert simulate(known, Plan(precision="fp8")).standing.parts.quantized == 1.0
    assert simulate(known, Plan(precision="bf16")).standing.parts.quantized == 0.0
