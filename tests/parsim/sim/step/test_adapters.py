"""LoRA in a simulated step: what frozen weights save, and what adapters cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import check_legal
from parsim.cost.software import software
from parsim.errors import PlanError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan
from parsim.plan.strategies import AsynchronousServer, LocalSGD
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.schedule_costs import SplitCosts

QKV = ("linear_qkv",)
SHARDED = Plan(dp_shard=8, zero_stage=1, num_microbatches=4)
SPLIT = Plan(tp=4, dp_shard=2, zero_stage=1, sequence_parallel=True, num_microbatches=4)
PIPELINE = Plan(pp=4, dp_shard=2, zero_stage=1, num_microbatches=8)


def job(name: str = "llama3-8b", stack: str = "megatron-bridge", **changes: Any) -> Job:
    spec = with_options(model_spec(name), seq_len=4096, **changes)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=load_catalog().system("dgx-h100"), num_nodes=1),
        software=software(stack),
    )


WHOLE, ADAPTED = job(), job(lora_rank=16, lora_targets=QKV)


def test_only_adapters_have_gradients_and_states() -> None:
    memory = evaluate(ADAPTED, SHARDED).memory[4]
    trained = 32 * 16 * (4096 + 6144)
    assert ADAPTED.model.updated.parameters == trained
    assert float(memory.parameters[0, 0]) == 2.0 * ADAPTED.model.parameters
    assert float(memory.gradients[0, 0]) == 4.0 * trained
    assert float(memory.optimizer[0, 0]) == 12.0 * trained / 8


@pytest.mark.parametrize("plan", [SHARDED, SPLIT, PIPELINE], ids=["dp", "tp", "pp"])
def test_a_step_loses_weight_gradients_and_most_of_the_reduction(plan: Plan) -> None:
    whole, adapted = simulate(WHOLE, plan), simulate(ADAPTED, plan)
    for part in ("backward", "gradient_reduction", "optimizer"):
        assert adapted.breakdown[part] < whole.breakdown[part]
    backward = adapted.breakdown["backward"] / adapted.breakdown["forward"]
    assert 0.95 < backward < 1.5 < whole.breakdown["backward"] / whole.breakdown["forward"]
    assert adapted.fullest.peak_allocated < whole.fullest.peak_allocated


@pytest.mark.parametrize("plan", [SHARDED, SPLIT, PIPELINE], ids=["dp", "tp", "pp"])
def test_more_adapters_and_higher_ranks_cost_more(plan: Plan) -> None:
    few, more = (
        simulate(job(lora_rank=rank, lora_targets=targets), plan)
        for rank, targets in ((16, QKV), (64, (*QKV, "linear_fc1")))
    )
    assert few.step_time < more.step_time
    assert few.fullest.peak_allocated < more.fullest.peak_allocated


def test_shards_of_frozen_weights_are_gathered_and_not_scattered() -> None:
    plan = replace(SHARDED, zero_stage=3)
    adapted = evaluate(ADAPTED, plan).memory[4]
    frozen = ADAPTED.model.parameters - ADAPTED.model.updated.parameters
    assert float(adapted.parameters[0, 0]) == pytest.approx(2.0 * frozen / 8, rel=0.01)
    assert float(adapted.gathered[0, 0]) > 0.0


def test_frozen_experts_have_no_gradients() -> None:
    plan = Plan(dp_shard=8, ep=8, zero_stage=1, num_microbatches=2)
    mixture = job("mixtral-8x7b", lora_rank=8, lora_targets=QKV)
    memory = evaluate(mixture, plan).memory[2]
    assert float(memory.gradients[0, 0]) == 4.0 * mixture.model.updated.parameters
    assert simulate(mixture, plan).step_time < simulate(job("mixtral-8x7b"), plan).step_time


def test_a_tied_frozen_table_is_not_summed_over_stages() -> None:
    plan = Plan(pp=4, dp_shard=2, num_microbatches=8)
    whole, adapted = job("gpt2", positions=4096), job("gpt2", positions=4096, lora_rank=4)
    assert float(evaluate(whole, plan).step.costs.tied[0]) > 0.0
    assert float(evaluate(adapted, plan).step.costs.tied[0]) == 0.0


@pytest.mark.parametrize(("stack", "share"), [("megatron-bridge", 0.1), ("executor-cuda", 0.25)])
def test_the_second_half_of_a_backward_is_of_adapters_alone(stack: str, share: float) -> None:
    """W is left with the products of adapters, and torch's call for each of them, on the device."""
    plan = replace(PIPELINE, schedule="zb_h1")
    jobs = (job(stack=stack, lora_rank=rank) for rank in (0, 16))
    quick = (replace(each, software=replace(each.software, launch_cost=4e-6)) for each in jobs)
    whole, adapted = (evaluate(each, plan).step.costs for each in quick)
    assert isinstance(whole, SplitCosts)
    assert isinstance(adapted, SplitCosts)
    assert (adapted.weight[1:] > 0.0).all()
    assert (adapted.weight[1:] < share * whole.weight[1:]).all()
    assert (adapted.weight[1:] < share * adapted.backward[1:]).all()
    assert (whole.weight[1:] > 0.2 * whole.backward[1:]).all()


def test_frozen_layers_keep_no_output_gradients_for_the_second_half() -> None:
    plan = replace(PIPELINE, schedule="zb_1p")
    few, more, whole = (
        simulate(job(stack="executor-cuda", **changes), plan).fullest.peak_allocated
        for changes in (
            {"lora_rank": 16, "lora_targets": QKV},
            {"lora_rank": 16},
            {},
        )
    )
    assert few < more < whole


SAVED = ("embed_tokens", "lm_head")
MATRIX = 128_256 * 4096


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_saved_modules_have_gradients_and_states(zero_stage: int) -> None:
    plan = replace(SHARDED, zero_stage=zero_stage)
    few, more = (
        evaluate(job(lora_rank=16, modules_to_save=names), plan).memory[4] for names in ((), SAVED)
    )
    gradients, states = (1 if zero_stage < at else 8 for at in (2, 1))
    assert float(more.parameters[0, 0]) == float(few.parameters[0, 0])
    added = float((more.gradients - few.gradients)[0, 0])
    assert added == pytest.approx(4.0 * 2 * MATRIX / gradients)
    assert float((more.optimizer - few.optimizer)[0, 0]) == pytest.approx(24.0 * MATRIX / states)


@pytest.mark.parametrize("saved", [(), SAVED[:1], SAVED[1:], SAVED])
def test_peft_keeps_the_originals_of_saved_modules(saved: tuple[str, ...]) -> None:
    for zero_stage, stack, shards in ((0, "huggingface", 1), (3, "deepspeed-huggingface", 8)):
        plan = Plan(dp_shard=8, zero_stage=zero_stage, num_microbatches=4)
        if not zero_stage:
            plan = Plan(dp_replicate=8, num_microbatches=4)
        frozen, trained = (
            evaluate(job(stack=stack, lora_rank=16, modules_to_save=names), plan).memory[4]
            for names in ((), saved)
        )
        added = float((trained.parameters - frozen.parameters)[0, 0])
        assert added == pytest.approx(2.0 * MATRIX * len(saved) / shards)


@pytest.mark.parametrize("plan", [SHARDED, SPLIT, PIPELINE], ids=["dp", "tp", "pp"])
def test_saved_modules_cost_products_reduction_and_update(plan: Plan) -> None:
    few, more = (simulate(job(lora_rank=16, modules_to_save=each), plan) for each in ((), SAVED))
    for part in ("backward", "gradient_reduction", "optimizer"):
        assert more.breakdown[part] > few.breakdown[part]
    assert more.breakdown["forward"] == pytest.approx(few.breakdown["forward"])


def test_a_saved_tied_table_is_summed_over_stages() -> None:
    plan = Plan(pp=4, dp_shard=2, num_microbatches=8)
    tied = job("gpt2", positions=4096, lora_rank=4, modules_to_save=SAVED)
    whole = evaluate(job("gpt2", positions=4096), plan).step.costs.tied[0]
    assert float(evaluate(tied, plan).step.costs.tied[0]) == float(whole) > 0.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": LocalSGD(every=4)}, "strategy.name=local_sgd .* with lora_rank use name=ddp"),
        ({"strategy": AsynchronousServer()}, "strategy.name=asynchronous_server"),
        ({"pp": 8, "dp_replicate": 1, "schedule": "pipedream"}, "schedule=pipedream .* lora_rank"),
    ],
)
def test_what_is_priced_for_whole_models_refuses_adapters(
    changes: dict[str, Any], message: str
) -> None:
    plan = replace(Plan(dp_replicate=8, num_microbatches=4), **changes)
    with pytest.raises(PlanError, match=message):
        check_legal(ADAPTED, plan)
