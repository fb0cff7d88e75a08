"""Recomputing the first layers of each stage: time and bytes between none and all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.kept.activations import kept_bytes, kept_policy
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.cost.step.plan_kernels import plan_kernels
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.rules.violation import violation
from parsim.plan.stages import Stage
from parsim.sim.prediction import Prediction
from parsim.sim.simulate import simulate
from parsim.sim.utilisation import recomputed_flops

LAYERS = 8
STACKS = ("generic", "megatron-2022", "torchtitan", "megatron-te-2025", "executor-cpu")


@cache
def job(stack: str = "megatron-te-2025", model: str = "llama3-8b", nodes: int = 1) -> Job:
    spec = replace(model_spec(model), num_layers=LAYERS, seq_len=1024)
    node = load_catalog().system("cpu" if stack == "executor-cpu" else "dgx-h100")
    node = replace(node, devices_per_node=8)
    cluster = Cluster(system=node, num_nodes=nodes)
    return Job(model=build_transformer(spec), cluster=cluster, software=software(stack))


@cache
def predicted(stack: str, plan: Plan) -> Prediction:
    return simulate(job(stack), plan)


PIPELINE = Plan(tp=2, pp=4, microbatch_size=1, num_microbatches=8)
SINGLE = Plan(dp_replicate=8, microbatch_size=2, num_microbatches=2)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("rest", [Recompute.NONE, Recompute.SELECTIVE])
@pytest.mark.parametrize(
    ("plan", "all_layers"),
    [
        (PIPELINE, 2),
        (replace(PIPELINE, schedule="zb_h1"), 2),
        (replace(PIPELINE, pp=2, dp_shard=2, zero_stage=2, schedule="gpipe"), 4),
        (SINGLE, 8),
        (replace(SINGLE, dp_replicate=1, dp_shard=8, zero_stage=3), 8),
    ],
    ids=lambda value: value.label() if isinstance(value, Plan) else str(value),
)
def test_all_layers_are_full_recomputation(
    stack: str, rest: Recompute, plan: Plan, all_layers: int
) -> None:
    full = predicted(stack, replace(plan, recompute=Recompute.FULL))
    every = predicted(stack, replace(plan, recompute=rest, recompute_layers=all_layers))
    assert every.step_time == pytest.approx(full.step_time, rel=1e-9)
    assert every.peak_allocated == pytest.approx(full.peak_allocated, rel=1e-9)
    assert every.memory == pytest.approx(full.memory, rel=1e-9)
    assert every.hfu == pytest.approx(full.hfu, rel=1e-9)


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("rest", [Recompute.NONE, Recompute.SELECTIVE])
@pytest.mark.parametrize(
    "plan",
    [
        replace(PIPELINE, pp=2, dp_replicate=2),
        replace(PIPELINE, pp=2, dp_replicate=2, schedule="zb_h1"),
        replace(PIPELINE, pp=2, dp_shard=2, zero_stage=1, schedule="interleaved_1f1b", v=2),
        SINGLE,
        replace(SINGLE, dp_replicate=1, dp_shard=8, zero_stage=3),
    ],
    ids=Plan.label,
)
def test_a_layer_more_is_never_faster(stack: str, rest: Recompute, plan: Plan) -> None:
    """None, one, two and all of a stage's layers."""
    most = LAYERS // plan.num_stages
    steps = [
        predicted(stack, replace(plan, recompute=rest, recompute_layers=n)).step_time
        for n in sorted({0, 1, min(2, most), most})
    ]
    assert all(after >= before * (1 - 1e-12) for before, after in pairwise(steps))
    assert steps[-1] > steps[0]


def test_each_layer_frees_what_it_keeps_beyond_its_input() -> None:
    """Rank 0 of four holds four micro-batches; a layer's input is s b h values of two bytes."""
    plan = replace(PIPELINE, tp=1, dp_replicate=2)
    model, table = job().model, PlanTable.of([plan])
    whole = float(kept_bytes(model.kinds[0], table, kept_policy(job().software))[0])
    none, first, both = (
        simulate(job(), replace(plan, recompute_layers=n)).memory_by_rank for n in (0, 1, 2)
    )
    freed = whole - 1024 * 4096 * 2
    for before, after in ((none, first), (first, both)):
        assert before[0]["activations"] - after[0]["activations"] == pytest.approx(4 * freed)
        assert before[3]["activations"] - after[3]["activations"] == pytest.approx(freed)


@pytest.mark.parametrize("stack", STACKS)
def test_activations_by_kind_sum_to_them(stack: str) -> None:
    prediction = simulate(job(stack), replace(PIPELINE, recompute_layers=1))
    total = sum(prediction.activations.values())
    assert total == pytest.approx(prediction.memory["activations"], rel=1e-9)


def test_flops_are_those_of_the_layers_that_are_repeated() -> None:
    model = job().model
    layer = float(model.blocks[0].forward_flops(PIPELINE.global_batch_size))
    for layers in (0, 1, 2):
        plan = replace(PIPELINE, recompute_layers=layers)
        assert recomputed_flops(job(), plan) == pytest.approx(4 * layers * layer)


def test_kernels_of_repeated_layers_run_once_more() -> None:
    def seconds(plan: Plan) -> float:
        return sum(kernel.weight for kernel in plan_kernels(job(), plan))

    none, half, full = (
        seconds(replace(PIPELINE, **change))
        for change in ({}, {"recompute_layers": 1}, {"recompute": Recompute.FULL})
    )
    assert half - none == pytest.approx((full - none) / 2)


def test_the_label_says_how_many() -> None:
    assert replace(PIPELINE, recompute_layers=2).label().endswith("recompute2")
    assert PIPELINE.to_json().get("recompute_layers") is None
    assert replace(PIPELINE, recompute_layers=2).to_json()["recompute_layers"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recompute_layers": 3}, "largest of which has 2; allowed: 0 to 2"),
        ({"recompute_layers": -1}, "allowed: 0 to 2"),
        ({"recompute_layers": 1, "recompute": Recompute.FULL}, "recompute=full recomputes all"),
        ({"recompute_layers": 1, "offload_layers": 1}, "cannot stand beside offload_layers=1"),
    ],
)
def test_numbers_that_no_plan_can_have(change: dict[str, object], message: str) -> None:
    plan = replace(PIPELINE, **change)  # type: ignore[arg-type]
    told = violation(plan, job().model, job().cluster)
    assert told is not None
    assert message in told


def test_stages_of_their_own_say_their_own_number() -> None:
    stages = (Stage(layers=4, replicas=4), Stage(layers=4, replicas=4))
    plan = Plan(pp=2, num_microbatches=8, stages=stages, recompute_layers=1)
    told = violation(plan, job().model, job().cluster)
    assert told is not None
    assert "write recompute_layers of each of the stages" in told


def test_a_stack_that_recomputes_whole_stages_has_no_number_of_layers() -> None:
    whole = replace(job(), software=replace(job().software, checkpoints_stages=True))
    told = illegal(whole, replace(PIPELINE, recompute_layers=1))
    assert told is not None
    assert "recomputes whole stages; use recompute=none or full" in told
