"""What a search without limits looks at: any number of chunks, all schedules, context parallel."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software, software_catalog
from parsim.errors import NoFeasiblePlan
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import PlanSpace, Recompute
from parsim.plan.names import SCHEDULE_NAMES, USUAL
from parsim.plan.rules.degrees import ZERO_STAGES
from parsim.plan.rules.violation import violation
from parsim.plan.space import Between
from parsim.planner import search
from parsim.planner.space import enumerate_plans
from parsim.planner.space.left_out import left_out


def job_of(layers: int, seq_len: int, devices: int, width: int = 4096) -> Job:
    """Llama of so many layers on part of an A100 node."""
    spec = replace(
        model_spec("llama3-8b"),
        num_layers=layers,
        seq_len=seq_len,
        hidden_size=width,
        ffn_hidden_size=4 * width,
    )
    node = replace(load_catalog().system("dgx-a100"), devices_per_node=devices)
    cluster = Cluster(system=node, num_nodes=1)
    return Job(model=build_transformer(spec), cluster=cluster, software=software("generic"))


def test_chunks_need_not_divide_the_layers() -> None:
    """26 layers on two ranks: 13 is a prime, so divisors would leave v = 13 alone."""
    job = job_of(26, 2048, 2, width=2048)
    space = PlanSpace(
        global_batch_size=4,
        tp=(1,),
        pp=(2,),
        microbatch_size=(1,),
        schedule=("interleaved_1f1b",),
        recompute=(Recompute.NONE,),
    )
    result = search(job, space, top=100)
    assert sorted(ranked.plan.v for ranked in result.plans) == list(range(2, 15))
    assert all(violation(entry.plan, job.model, job.cluster) is None for entry in result.plans)
    # 15 layers on one rank, 11 and the head, worth almost four, on the other
    assert result.plans[0].plan.stage_layers == (3, 3, 4, 4, 4, 4, 4, 0)
    thirteen = next(entry for entry in result.plans if entry.plan.v == 13)
    assert thirteen.step_time > 1.01 * result.plans[0].step_time


def test_context_parallelism_wins_where_one_long_sequence_is_all_there_is() -> None:
    job = job_of(8, 131072, 8)
    space = PlanSpace(global_batch_size=1, pp=(1,))
    result = search(job, space, top=3)
    assert result.plans[0].plan.cp > 1
    without = search(job, replace(space, cp=(1,)), top=1).plans[0]
    assert result.plans[0].step_time < without.step_time


def test_zero_bubble_wins_where_micro_batches_are_few() -> None:
    """Schedules with more than two chunks a rank are left out: those without bubbles have two."""
    job = job_of(16, 2048, 4)
    space = PlanSpace(
        global_batch_size=4,
        tp=(1,),
        pp=(4,),
        v=(1, 2),
        microbatch_size=(1,),
        recompute=(Recompute.FULL,),
    )
    best = search(job, space, top=1).plans[0]
    assert best.plan.schedule.startswith(("zb_", "v_"))
    usual = replace(space, schedule=("naive", "gpipe", "1f1b", "interleaved_1f1b"))
    assert best.step_time < search(job, usual, top=1).plans[0].step_time


@pytest.mark.slow
def test_the_best_are_those_of_every_plan_simulated() -> None:
    job = job_of(6, 1024, 4)
    space = PlanSpace(
        global_batch_size=8,
        tp=(1,),
        zero_stage=(0,),
        microbatch_size=(1, 2),
        recompute=(Recompute.NONE,),
    )
    everything = search(job, space, top=10**6)
    assert everything.counts["slower"] == 0
    for top in (1, 10):
        pruned = search(job, space, top=top)
        assert pruned.plans == everything.plans[:top]
        assert pruned.counts["slower"] > 0


def test_what_is_left_out_is_told() -> None:
    job = on_stack("generic")
    everywhere = left_out(job, PlanSpace(global_batch_size=8))
    assert not {"tp", "pp", "cp", "ep", "v", "zero_stage"} & everywhere.keys()
    rare = [name for name in SCHEDULE_NAMES if name not in USUAL]
    named = "search.schedule names them if wanted"
    assert everywhere["schedule"] == f"seldom used are {', '.join(rare)}; {named}"
    assert {"stage_layers", "dp_shard", "action_times", "rank_order"} <= everywhere.keys()
    narrow = PlanSpace(global_batch_size=8, cp=(1, 2), schedule=SCHEDULE_NAMES[:-1])
    assert left_out(job, narrow)["cp"] == "all but 1, 2"
    assert left_out(job, narrow)["schedule"] == SCHEDULE_NAMES[-1]


# --------------------------------------------------------------------------- what a stack has


def on_stack(stack: str) -> Job:
    return replace(job_of(8, 1024, 4), software=software(stack))


def schedules_of(job: Job, space: PlanSpace) -> set[str]:
    """The schedules of all legal plans with pipelines."""
    table = enumerate_plans(job, space).table
    assert table is not None
    return {table.schedules[number] for number in table.schedule[table.pp > 1].tolist()}


@pytest.mark.parametrize("stack", sorted(software_catalog()))
def test_a_search_looks_at_the_schedules_that_the_stack_has(stack: str) -> None:
    job, space = on_stack(stack), PlanSpace(global_batch_size=8)
    has = set(job.software.schedules)
    assert has <= set(SCHEDULE_NAMES)
    looked = schedules_of(job, space)
    assert looked <= has
    assert job.software.executor or looked == has  # the executor refuses more
    words = re.findall(r"\w+", left_out(job, space)["schedule"])
    assert {word for word in words if word in SCHEDULE_NAMES} == set(SCHEDULE_NAMES) - has


def stages_of(job: Job, space: PlanSpace) -> tuple[set[int], set[int]]:
    """The ZeRO stages of all legal plans without and with pipelines."""
    table = enumerate_plans(job, replace(space, tp=(1,), microbatch_size=(1,))).table
    assert table is not None
    alone = table.pp == 1
    return set(table.zero_stage[alone].tolist()), set(table.zero_stage[~alone].tolist())


@pytest.mark.parametrize("stack", sorted(software_catalog()))
def test_a_search_looks_at_the_zero_stages_that_the_stack_has(stack: str) -> None:
    job, space = on_stack(stack), PlanSpace(global_batch_size=8)
    stack_of = job.software
    alone, pipelined = stages_of(job, space)
    assert alone == set(stack_of.zero_stages)
    assert pipelined <= set(stack_of.pipeline_zero_stages)  # the executor refuses more
    if stack_of.schedules and not stack_of.executor:
        assert pipelined == set(stack_of.pipeline_zero_stages)
    told = left_out(job, space).get("zero_stage", "")
    lacked = [str(stage) for stage in ZERO_STAGES if stage not in stack_of.zero_stages]
    assert told.startswith(", ".join(lacked))


def test_zero_stages_that_are_named_are_looked_at_whatever_the_stack_has() -> None:
    job, space = on_stack("megatron-bridge"), PlanSpace(global_batch_size=8, zero_stage=(2,))
    assert stages_of(job, space) == ({2}, {2})
    assert stages_of(job, replace(space, zero_stage=None)) == ({0, 1, 2, 3}, {0, 1})
    assert left_out(job, replace(space, zero_stage=None))["zero_stage"] == (
        "2, 3 with pipelines: megatron-bridge has none of them; search.zero_stage names them if "
        "wanted"
    )
    some = replace(space, zero_stage=Between(most=1))
    assert stages_of(job, some) == ({0, 1}, {0, 1})


@pytest.mark.parametrize("stack", ["megatron-2022", "mpt-fsdp-2023"])
def test_schedules_that_are_named_are_looked_at_whatever_the_stack_has(stack: str) -> None:
    job, names = on_stack(stack), ("zb_v", "gpipe")
    space = PlanSpace(global_batch_size=8, schedule=names)
    assert schedules_of(job, space) == set(names)
    result = search(job, replace(space, tp=(1,), pp=(4,), microbatch_size=(1,)), top=1)
    assert result.plans[0].plan.schedule in names
    assert stack not in result.left_out["schedule"]


def test_a_stack_without_pipelines_and_a_space_of_pipelines() -> None:
    with pytest.raises(NoFeasiblePlan, match="mpt-fsdp-2023 lacks naive, gpipe, 1f1b, "):
        search(on_stack("mpt-fsdp-2023"), PlanSpace(global_batch_size=8, pp=(2, 4)))
