"""Enumeration against plans listed by plain loops and the words of the issue."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from parsim.cost.job import Job
from parsim.errors import PlanError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.names import SCHEDULE_NAMES
from parsim.plan.rules.violation import LAYER_RULES, RULES, SHAPE_RULES, violation
from parsim.plan.space import Between
from parsim.planner.space import Enumeration, check_space, enumerate_plans

LAYERS, HEADS, WORLD, BATCH = 6, 4, 4, 8
STAGES = LAYERS + 2  # embedding and head may be alone


def listed(enumeration: Enumeration) -> list[Plan]:
    """The legal plans as records."""
    assert enumeration.table is not None
    return [enumeration.table.plan(row) for row in range(len(enumeration.table))]


def every_plan(common: Plan) -> Iterator[Plan]:
    """Each different and legal plan of the tiny job once, without the rules of parsim."""
    degrees = product(*[range(1, WORLD + 1)] * 4, range(1, BATCH + 1), range(1, STAGES + 1))
    for tp, pp, cp, dp, size, v in degrees:
        if tp * pp * cp * dp != WORLD or HEADS % tp or pp * v > STAGES or BATCH % (dp * size):
            continue
        microbatches = BATCH // (dp * size)
        for schedule in pipelines(pp, v, microbatches):
            for zero, recompute, sequence in product(range(4), Recompute, (False, True)):
                if (zero and dp * cp == 1) or (sequence and tp == 1):
                    continue
                yield replace(
                    common,
                    tp=tp,
                    pp=pp,
                    cp=cp,
                    dp_replicate=1 if zero else dp,
                    dp_shard=dp if zero else 1,
                    microbatch_size=size,
                    num_microbatches=microbatches,
                    schedule=schedule,
                    v=v,
                    zero_stage=zero,
                    recompute=recompute,
                    sequence_parallel=sequence,
                )


def pipelines(pp: int, v: int, microbatches: int) -> list[str]:
    """Schedules that differ: one without a pipeline, any number of chunks with interleaving."""
    if pp == 1:
        return ["1f1b"] if v == 1 else []
    if v == 1:
        whole = ["naive", "gpipe", "1f1b", "eager_1f1b", "bpipe"]
        both_ways = ["chimera", "dualpipe"] if pp % 2 == 0 == microbatches % 2 else []
        return [*whole, *both_ways, "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto"]
    looped = ["looped_bfs"] + (["interleaved_1f1b"] if microbatches % pp == 0 else [])
    waves = ["hanayo"] if v % 2 == 0 else []
    return looped + waves + (["zb_v", "v_half", "v_min", "dualpipe_v"] if v == 2 else [])


def test_every_legal_plan_is_there_once(job: Job, space: PlanSpace) -> None:
    result, expected = listed(enumerate_plans(job, space)), list(every_plan(space.common))
    assert len(result) == len(set(result)) == len(expected) > 300
    assert set(result) == set(expected)


def test_all_are_legal_and_the_rest_is_counted(job: Job, space: PlanSpace) -> None:
    enumeration = enumerate_plans(job, space)
    plans = listed(enumeration)
    assert [plan for plan in plans if violation(plan, job.model, job.cluster)] == []
    assert {plan.global_batch_size for plan in plans} == {BATCH}
    assert enumeration.enumerated == enumeration.illegal + len(plans)
    assert enumeration.illegal == sum(enumeration.reasons.values()) > 0


def test_what_is_refused_has_its_reason(job: Job, space: PlanSpace) -> None:
    narrow = replace(space, tp=(4,), pp=(1,), schedule=("1f1b",), recompute=(Recompute.NONE,))
    odd = replace(job, model=replace(job.model, tokens=254))
    assert enumerate_plans(job, narrow).reasons == {}
    interleaved = replace(
        space,
        tp=(1,),
        pp=(4,),
        v=(3,),
        schedule=("interleaved_1f1b",),
        zero_stage=(0,),
        recompute=(Recompute.NONE,),
    )
    enumeration = enumerate_plans(odd, interleaved)
    assert enumeration.table is None
    # 4 x 3 stages for 6 layers, embedding and head; micro-batches of 1, 2, 4 and 8 sequences, the
    # last two of them with fewer micro-batches than ranks, which is told first
    assert sum(enumeration.reasons.values()) == enumeration.illegal == enumeration.enumerated == 4
    assert any(
        "more stages than layers: pp=4 x v=3 = 12" in reason for reason in enumeration.reasons
    )


@pytest.mark.parametrize(
    "values",
    [
        {"tp": (1, 2)},
        {"pp": (2,)},
        {"microbatch_size": (1, 4)},
        {"v": (1,)},
        {"zero_stage": (0, 2)},
        {"recompute": (Recompute.FULL,)},
        {"sequence_parallel": (False,)},
        {"tp": (2,), "pp": (2,), "schedule": ("gpipe", "interleaved_1f1b")},
    ],
    ids=str,
)
def test_a_space_is_a_filter(
    job: Job, space: PlanSpace, values: dict[str, tuple[object, ...]]
) -> None:
    enumeration = listed(enumerate_plans(job, replace(space, **values)))  # type: ignore[arg-type]
    expected = [
        plan
        for plan in every_plan(space.common)
        if all(getattr(plan, name) in allowed for name, allowed in values.items())
    ]
    assert len(enumeration) == len(expected) > 0
    assert set(enumeration) == set(expected)


def test_plans_keep_what_they_share(job: Job, space: PlanSpace) -> None:
    common = replace(space.common, bucket_bytes=1e6, overlap_p2p=True, stage_layers=(3, 3))
    plans = listed(enumerate_plans(job, replace(space, common=common)))
    assert {plan.bucket_bytes for plan in plans} == {1e6}
    assert {plan.overlap_p2p for plan in plans} == {True}
    assert {plan.stage_layers for plan in plans} == {None}


def test_a_value_that_is_listed_twice_counts_once(job: Job, space: PlanSpace) -> None:
    twice = replace(
        space,
        tp=(2, 2),
        pp=(1, 2, 1),
        schedule=("1f1b", "1f1b"),
        zero_stage=(0, 0),
        recompute=(Recompute.NONE,) * 2,
        sequence_parallel=(True, True),
    )
    enumeration = enumerate_plans(job, twice)
    plans = listed(enumeration)
    assert len(plans) == len(set(plans)) == enumeration.enumerated - enumeration.illegal > 0


def test_a_batch_that_replicas_cannot_share(job: Job, space: PlanSpace) -> None:
    plans = listed(enumerate_plans(job, replace(space, global_batch_size=3)))
    assert {plan.dp for plan in plans} == {1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zero_stage": (0, 5)}, "zero_stage=5 is unknown; allowed: 0, 1, 2, 3"),
        (
            {"zero_stage": Between(least=4)},
            "zero_stage >= 4 leaves none of the stages of megatron-2021: 0, 1, 2, 3; widen it, or "
            "list others",
        ),
        ({"common": Plan(ep=2)}, "ep=2: gpt2 has no experts; use ep=1"),
        (
            {"common": Plan(precision="fp8")},
            "precision='fp8' has no peak on device a100-sxm-80gb; "
            "allowed: fp32, tf32, bf16, fp16, bf16_amp, bf16_pure, fp16_amp",
        ),
    ],
)
def test_spaces_without_a_possible_plan(
    job: Job, space: PlanSpace, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        check_space(job, replace(space, **changes))  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_context_parallelism_is_tried_where_attention_is_fused(job: Job, space: PlanSpace) -> None:
    """4 devices: cp takes from the replicas; zero_stage shards over both; fused attention only."""
    fused = replace(
        job, model=build_transformer(replace(model_spec("llama3-8b"), num_layers=4, seq_len=256))
    )
    enumeration = enumerate_plans(fused, space).table
    assert enumeration is not None
    plans = [enumeration.plan(row) for row in range(len(enumeration))]
    assert {plan.cp for plan in plans} == {1, 2, 4}
    assert all(plan.world_size == 4 for plan in plans)
    assert any(plan.cp == 4 and plan.zero_stage == 3 for plan in plans)
    assert [violation(plan, fused.model, fused.cluster) for plan in plans] == [None] * len(plans)
    alone = enumerate_plans(fused, replace(space, cp=(1,))).table
    assert alone is not None
    assert {plan for plan in plans if plan.cp == 1} == {
        alone.plan(row) for row in range(len(alone))
    }


def test_sequences_that_context_parallelism_cannot_cut(job: Job, space: PlanSpace) -> None:
    """12 tokens: two pieces for each of 2 ranks, but not for each of 4."""
    odd = replace(
        job, model=build_transformer(replace(model_spec("llama3-8b"), num_layers=4, seq_len=12))
    )
    listed = enumerate_plans(odd, replace(space, cp=(2, 4), tp=(1, 2)))
    assert listed.table is not None
    assert set(listed.table.cp.tolist()) == {2}
    assert any(message.startswith("cp=4 cuts seq_len=12 into 8") for message in listed.reasons)


def test_one_check_of_a_shape_is_enough(job: Job) -> None:
    """Rules beside those of shapes say the same of every schedule, number of chunks and layers."""
    others = tuple(rule for rule in RULES if rule not in (*SHAPE_RULES, *LAYER_RULES))
    degrees = [Plan(pp=2, dp_replicate=2), Plan(tp=2, pp=2, sequence_parallel=True), Plan(tp=3)]
    degrees += [Plan(pp=2, cp=2), Plan(pp=4, zero_stage=1), Plan(precision="fp8", dp_replicate=4)]
    for plan, schedule, v, layers in product(degrees, SCHEDULE_NAMES, (1, 2, 9), (0, 1, 99)):
        expected = violation(plan, job.model, job.cluster, others)
        for name in ("offload_layers", "recompute_layers"):
            shaped = replace(plan, schedule=schedule, v=v, **{name: layers})  # type: ignore[arg-type]
            assert violation(shaped, job.model, job.cluster, others) == expected
