"""The predicted peak: parts that sum to it, by rank and by layer; more work never needs less."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable, Recompute
from parsim.planner.bounds import plan_bounds
from parsim.scenario import load_scenario
from parsim.sim import Prediction, simulate
from parsim.sim.memory.eager_kept import in_buckets
from parsim.sim.recurrence.evaluate import evaluate
from tests.commands import SCENARIOS
from tests.parsim.sim.conftest import PLANS, gpt_job

STACKS = (
    "generic",
    "megatron-2021",
    "megatron-te-2025",
    "mpt-fsdp-2023",
    "torchtitan",
    "executor-cpu",
)

names = st.sampled_from(sorted(PLANS))
stacks = st.sampled_from(STACKS)


@cache
def under(stack: str, seq_len: int = 2048, *, fused: bool = True) -> Job:
    spec = with_options(
        model_spec("gpt-1.7b"),
        seq_len=seq_len,
        positions=seq_len,
        fused_attention=fused,
        dropout=not fused,
    )
    job = gpt_job()
    return replace(job, model=build_transformer(spec), software=software(stack))


@cache
def predicted(stack: str, fused: bool, plan: Plan) -> Prediction:
    return simulate(under(stack, fused=fused), plan)


def peak(job: Job, plan: Plan) -> float:
    return max(simulate(job, plan).peak_allocated)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("fused", [True, False])
def test_parts_sum_to_the_peak_of_every_rank(stack: str, fused: bool, plan: Plan) -> None:
    prediction = predicted(stack, fused, plan)
    assert len(prediction.memory_by_rank) == len(prediction.peak_allocated) == plan.pp
    for parts, whole in zip(prediction.memory_by_rank, prediction.peak_allocated, strict=True):
        assert min(parts.values()) >= 0.0
        assert sum(parts.values()) == pytest.approx(whole, rel=1e-12)
    assert prediction.memory == prediction.memory_by_rank[prediction.fullest.rank]


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("fused", [True, False])
def test_layers_sum_to_the_activations(stack: str, fused: bool, plan: Plan) -> None:
    prediction = predicted(stack, fused, plan)
    assert sum(prediction.activations.values()) == pytest.approx(
        prediction.memory["activations"], rel=1e-12
    )
    assert min(prediction.activations.values(), default=0.0) >= 0.0


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_layers_sum_to_the_activations_of_shipped_scenarios(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.plan is not None
    prediction = simulate(scenario.job, scenario.plan)
    assert sum(prediction.activations.values()) == pytest.approx(prediction.memory["activations"])


@pytest.mark.parametrize("recompute", list(Recompute))
def test_what_recomputation_leaves(recompute: Recompute) -> None:
    """Full: inputs alone; selective: all but the scores; none: everything."""
    plan = Plan(pp=4, dp_replicate=4, num_microbatches=8, recompute=recompute)
    prediction = set(simulate(under("megatron-2021", fused=False), plan).activations)
    blocks = {"norms", "attention", "mlp", "dropout_masks"}
    expected = {
        Recompute.NONE: blocks | {"attention_scores"},
        Recompute.SELECTIVE: blocks,
        Recompute.FULL: {"layer_inputs"},
    }
    assert prediction - {"embedding", "head"} == expected[recompute]


@settings(max_examples=8)
@given(name=names, stack=stacks, more=st.integers(min_value=2, max_value=4))
def test_larger_micro_batches_never_need_less(name: str, stack: str, more: int) -> None:
    plan = PLANS[name]
    larger = replace(plan, microbatch_size=more * plan.microbatch_size)
    assert peak(under(stack), plan) <= peak(under(stack), larger)


@settings(max_examples=8)
@given(name=names, stack=stacks, factor=st.sampled_from([2, 4]))
def test_longer_sequences_never_need_less(name: str, stack: str, factor: int) -> None:
    assert peak(under(stack), PLANS[name]) <= peak(under(stack, 2048 * factor), PLANS[name])


@settings(max_examples=8)
@given(stack=stacks, zero=st.sampled_from([1, 2, 3]), shards=st.sampled_from([2, 4, 8]))
def test_more_shards_never_need_more(stack: str, zero: int, shards: int) -> None:
    few = Plan(dp_replicate=16 // shards, dp_shard=shards, zero_stage=zero, num_microbatches=2)
    many = replace(few, dp_replicate=8 // shards, dp_shard=2 * shards)
    assert peak(under(stack), many) <= peak(under(stack), few)


@settings(max_examples=8)
@given(name=names, stack=stacks)
def test_recomputing_more_never_keeps_more(name: str, stack: str) -> None:
    kept = []
    for recompute in (Recompute.FULL, Recompute.SELECTIVE, Recompute.NONE):
        prediction = simulate(under(stack), replace(PLANS[name], recompute=recompute))
        kept.append(sum(parts["activations"] for parts in prediction.memory_by_rank))
    assert kept == sorted(kept)


def test_softmaxes_wait_on_gpipe_s_last_stage() -> None:
    """All six micro-batches are in flight there: one at its loss, five softmaxes behind it."""
    job, plan = under("megatron-2021"), PLANS["gpipe"]
    assert job.model.loss is not None
    logits = plan.microbatch_size * 2048 * job.model.loss.vocab_size / plan.tp
    prediction = simulate(job, plan).memory_by_rank
    assert prediction[-1]["logits"] == pytest.approx(logits * (14 + 5 * 4))
    assert [parts["logits"] for parts in prediction[:-1]] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("stack", STACKS)
def test_the_bound_without_a_schedule_is_below_the_peak(stack: str, plan: Plan) -> None:
    job, table = under(stack), PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    evaluation = evaluate(job, plan, layers=[layers])
    least = plan_bounds(job, table, layers, np.zeros(1, dtype=np.int64)).peak[0]
    assert least <= evaluation.peak.max()


@pytest.mark.parametrize(
    ("changes", "bucketed"),
    [
        ({}, False),
        ({"dp_replicate": 2}, True),
        ({"pp": 2}, False),
        ({"dp_replicate": 2, "overlap_grad_reduce": False}, True),
        ({"dp_replicate": 2, "pp": 2}, True),
        ({"dp_shard": 2, "zero_stage": 1}, True),
        ({"dp_shard": 2, "zero_stage": 2}, False),
        ({"precision": "bf16"}, True),
        ({"precision": "bf16", "dp_shard": 2, "zero_stage": 3}, False),
    ],
)
def test_gradients_in_buckets_stay(changes: dict[str, object], bucketed: bool) -> None:
    plan = Plan(**{"precision": "fp32", **changes})  # type: ignore[arg-type]
    assert in_buckets(under("executor-cpu"), PlanTable.of([plan])).tolist() == [bucketed]
    routed = replace(under("executor-cpu"), model=build_transformer(model_spec("mixtral-8x7b")))
    spread = replace(plan, dp_replicate=2 * plan.dp_replicate, ep=2)
    expected = bucketed or plan.zero_stage < 2
    assert in_buckets(routed, PlanTable.of([spread])).tolist() == [expected]
