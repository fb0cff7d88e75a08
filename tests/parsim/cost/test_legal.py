"""A plan trains with its job's global batch, or is refused with the field to change."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import parsim
from parsim import PlanError
from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal, unrun
from parsim.cost.software import software
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace
from parsim.plan.stages import Stage
from parsim.planner.space import enumerate_plans

JOB = Job(
    model=build_transformer(model_spec("gpt-1.7b")),
    cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=1),
    software=software("generic"),
    global_batch_size=64,
)
PLAN = Plan(tp=2, dp_replicate=4, microbatch_size=1, num_microbatches=16)


def test_a_plan_that_meets_the_batch_is_legal() -> None:
    assert illegal(JOB, PLAN) is None
    assert illegal(JOB, replace(PLAN, microbatch_size=2, num_microbatches=8)) is None
    assert illegal(replace(JOB, global_batch_size=None), replace(PLAN, microbatch_size=2)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"microbatch_size": 2},
            "num_microbatches=16 x microbatch_size=2 x dp=4 = 128, but global_batch_size=64; use "
            "num_microbatches=8",
        ),
        (
            {"microbatch_size": 3},
            "global_batch_size=64 is not divisible by microbatch_size=3 x dp=4 = 12; use a "
            "multiple of 12, or a microbatch_size x dp that divides 64",
        ),
        (
            {"replica_microbatches": (16, 16, 16, 15)},
            "replica_microbatches=[16, 16, 16, 15] x microbatch_size=1 = 63, but "
            "global_batch_size=64; sum to 64",
        ),
    ],
)
def test_another_batch_is_refused_with_the_field_to_change(
    changes: dict[str, object], message: str
) -> None:
    plan = replace(PLAN, **changes)  # type: ignore[arg-type]
    assert illegal(JOB, plan) == message
    with pytest.raises(PlanError, match=f"^{re.escape(message)}$"):
        parsim.simulate(JOB, plan)


def test_a_search_of_another_batch_is_refused() -> None:
    with pytest.raises(PlanError, match=r"^global_batch_size=32 of the space .*_size=64$"):
        parsim.search(JOB, PlanSpace(global_batch_size=32))


def grouped(stack: str) -> Job:
    """Llama 3 8B, which has 8 heads of keys and values, on 16 devices."""
    return Job(
        model=build_transformer(model_spec("llama3-8b")),
        cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=2),
        software=software(stack),
    )


@pytest.mark.parametrize("stack", ["generic", "executor-cpu", "megatron-2022", "megatron-lm"])
def test_more_ranks_than_key_value_heads_where_the_software_has_a_way(stack: str) -> None:
    assert illegal(grouped(stack), Plan(tp=16, num_microbatches=4)) is None


@pytest.mark.parametrize("stack", ["nemo", "torchtitan", "megatron-te-2025", "maxtext"])
def test_software_that_keeps_heads_whole_says_so(stack: str) -> None:
    job, plan = grouped(stack), Plan(tp=16, num_microbatches=4)
    message = (
        f"tp=16 with num_key_value_heads=8: {stack} keeps each key-value head on one rank; "
        f"allowed: 1, 2, 4, 8, or a software that copies or gathers heads (parsim catalog software)"
    )
    assert illegal(job, plan) == message
    assert illegal(job, replace(plan, tp=8, dp_replicate=2)) is None
    space = PlanSpace(global_batch_size=16, tp=(8, 16), pp=(1,), cp=(1,))
    searched = enumerate_plans(job, space)
    assert message in searched.reasons
    assert searched.table is not None
    assert set(searched.table.tp.tolist()) == {8}


def test_all_to_alls_of_the_software_share_heads_out() -> None:
    job = grouped("xtuner")
    assert illegal(job, Plan(cp=16)) is None  # each of 8 key-value heads on two ranks
    assert illegal(job, Plan(cp=8, dp_replicate=2)) is None
    whole = replace(job, software=replace(job.software, kv_heads="whole"))
    message = illegal(whole, Plan(cp=16))
    assert message is not None
    assert "cp=16 does not divide num_key_value_heads=8" in message
    assert illegal(grouped("generic"), Plan(cp=16)) is None  # a ring, which divides no heads


def test_stages_of_their_own_copy_no_heads_in_the_executor() -> None:
    cpu = Cluster(system=load_catalog().system("cpu"), num_nodes=1)
    spec = replace(model_spec("llama3-8b"), num_key_value_heads=1, num_layers=2)
    job = Job(model=build_transformer(spec), cluster=cpu, software=software("executor-cpu"))
    stages = (Stage(layers=1, tp=2), Stage(layers=1, tp=1))
    plan = Plan(pp=2, stages=stages, num_microbatches=2)
    assert "copy no heads; use tp of at most 1" in (unrun(job, plan) or "")


def test_software_without_accumulation_runs_one_micro_batch_where_it_has_no_pipeline() -> None:
    job = grouped("torchtitan")
    early = replace(job, software=replace(job.software, accumulates=False))
    plan = Plan(dp_replicate=16, num_microbatches=2)
    assert illegal(job, plan) is None
    message = (
        "num_microbatches=2 without a pipeline: torchtitan of that time adds no gradients of "
        "micro-batches up; use num_microbatches=1"
    )
    assert illegal(early, plan) == message
    assert illegal(early, replace(plan, microbatch_size=2, num_microbatches=1)) is None
    assert illegal(early, Plan(pp=2, dp_replicate=8, num_microbatches=4)) is None
    space = PlanSpace(global_batch_size=32, tp=(1,), pp=(1, 2), cp=(1,))
    table = enumerate_plans(early, space).table
    assert table is not None
    assert set(table.num_microbatches[table.pp == 1].tolist()) == {1}
    assert set(table.num_microbatches[table.pp == 2].tolist()) == {1, 2, 4}


def packed(stack: str) -> Job:
    """Llama 3 8B on sequences that samples of 512 tokens are packed to, on 16 devices."""
    model = build_transformer(replace(model_spec("llama3-8b"), sample_length=512))
    return replace(grouped(stack), model=model)


@pytest.mark.parametrize("stack", ["nemo", "megatron-bridge", "megatron-lm"])
def test_megatron_packs_into_micro_batches_of_one_sequence(stack: str) -> None:
    plan = Plan(dp_replicate=16, microbatch_size=2)
    message = (
        f"microbatch_size=2 of packed samples: {stack} runs packed sequences one by one; use "
        f"microbatch_size=1"
    )
    assert illegal(packed(stack), plan) == message
    assert illegal(grouped(stack), plan) is None
    assert illegal(packed("torchtune"), plan) is None
    space = PlanSpace(global_batch_size=32, tp=(1, 2), pp=(1,), cp=(1,))
    searched = enumerate_plans(packed(stack), space)
    assert message in searched.reasons
    assert searched.table is not None
    assert set(searched.table.microbatch_size.tolist()) == {1}


def test_degrees_that_are_refused_spoil_no_others() -> None:
    """Plans of as many pipeline ranks and micro-batches share the answer of their pipelines."""
    job = grouped("nemo")
    space = PlanSpace(global_batch_size=16, tp=(16, 1), pp=(1,), cp=(1,))
    table = enumerate_plans(job, space).table
    assert table is not None
    assert set(table.tp.tolist()) == {1}


@pytest.mark.parametrize(
    ("pp", "v", "legal"), [(2, 8, True), (4, 3, False), (4, 8, True), (2, 17, True), (4, 5, False)]
)
def test_software_that_cuts_evenly_counts_embedding_and_head_at_most(
    pp: int, v: int, legal: bool
) -> None:
    """Llama 3 8B has 32 layers: 2 x 17 stages hold one layer, the embedding or the head each."""
    plan = Plan(
        pp=pp, v=v, dp_replicate=16 // pp, num_microbatches=2 * pp, schedule="interleaved_1f1b"
    )
    message = illegal(grouped("nemo"), plan)
    assert (message is None) == legal
    assert legal or f"pp={pp} x v={v} = {pp * v} stages of 32 layers: nemo" in (message or "")
    assert illegal(grouped("megatron-bridge"), plan) is None
    space = PlanSpace(global_batch_size=32, tp=(1,), pp=(pp,), cp=(1,), v=(v,))
    table = enumerate_plans(grouped("nemo"), space).table
    assert (table is not None and v in table.v.tolist()) == legal


def test_a_cut_that_a_plan_states_need_not_be_even() -> None:
    plan = Plan(pp=4, v=3, dp_replicate=4, num_microbatches=8, schedule="interleaved_1f1b")
    assert "use pp and v that divide 32 to 34" in (illegal(grouped("nemo"), plan) or "")
    assert illegal(grouped("nemo"), replace(plan, stage_layers=(3,) * 8 + (2,) * 4)) is None
