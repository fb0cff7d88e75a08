"""What the software block decides, and what it leaves to others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parsim.cost.software import changed_switches, software
from parsim.errors import ScenarioError
from parsim.scenario import load_scenario, scenario_text
from tests.parsim.scenario.blocks.written import load


def test_software_decides_attention_and_the_switches_of_the_plan(tmp_path: Path) -> None:
    scenario = load(tmp_path, software="megatron-2021")
    assert scenario.plan is not None
    assert not scenario.spec.fused_attention
    assert (scenario.plan.reduce_precision, scenario.plan.scatter_p2p) == ("fp32", True)
    assert (scenario.plan.overlap_grad_reduce, scenario.plan.overlap_p2p) == (False, False)


def test_software_decides_what_gradients_are_summed_in(tmp_path: Path) -> None:
    training = {"global_batch_size": 8, "precision": "fp16"}
    block = {"dp": 8, "gradient_precision": "fp32"}
    usual = load(tmp_path, software="megatron-2021", training=training).plan
    stated = load(tmp_path, software="megatron-2021", training=training, plan=block).plan
    assert usual is not None
    assert stated is not None
    assert (usual.gradient_precision, usual.reduce_precision) == ("same", "same")
    assert (stated.gradient_precision, stated.reduce_precision) == ("fp32", "fp32")


def test_switches_beside_the_name_of_a_stack_replace_its_own(tmp_path: Path) -> None:
    block = {"name": "megatron-lm", "expert_dispatcher": "DeepEP", "expert_overlap": 1.0}
    scenario = load(tmp_path, software=block)
    stack = scenario.job.software
    assert (stack.id, stack.expert_dispatcher) == ("megatron-lm", "deepep")
    assert stack.expert_hidden("h100-sxm-80gb") == 1.0
    assert changed_switches(stack) == {"expert_dispatcher": "deepep", "expert_overlap": 1.0}
    assert any("expert_dispatcher=deepep" in note for note in scenario.notes)
    usual = load(tmp_path, software={"name": "megatron-lm"}).job.software
    assert changed_switches(usual) == {}
    assert usual == software("megatron-lm")


def test_switches_are_saved_with_a_plan(tmp_path: Path) -> None:
    scenario = load(tmp_path, software={"name": "nemo", "tp_overlap": False})
    assert scenario.plan is not None
    (tmp_path / "saved.yaml").write_text(scenario_text(scenario, scenario.plan), encoding="utf-8")
    assert load_scenario(tmp_path / "saved.yaml").job == scenario.job


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"name": "nemo", "expert_overlap": 1.5}, "must be at most 1"),
        ({"name": "nemo", "expert_dispatcher": "ucx"}, "allowed: alltoall, deepep, hybridep"),
        ({"name": "nemo", "overlap": 0.5}, "overlap is an unknown key"),
        ({"expert_overlap": 1.0}, "software.name is missing"),
        ({"name": "memo"}, "did you mean 'nemo'?"),
    ],
)
def test_switches_that_no_stack_has(tmp_path: Path, block: object, message: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(message)):
        load(tmp_path, software=block)


def test_model_and_plan_win_over_the_software(tmp_path: Path) -> None:
    model = {"name": "gpt2", "fused_attention": True}
    plan = {"reduce_precision": "fp32", "overlap_p2p": True}
    scenario = load(tmp_path, software="megatron-2021", model=model, plan=plan)
    assert scenario.plan is not None
    assert scenario.spec.fused_attention
    assert (scenario.plan.reduce_precision, scenario.plan.overlap_p2p) == ("fp32", True)
    assert scenario.plan.scatter_p2p


def test_what_is_assumed_is_noted(tmp_path: Path) -> None:
    scenario = load(tmp_path, software=None, training={"global_batch_size": 16})
    assert scenario.notes == (
        "precision is not stated: 'bf16' is assumed",
        "software is not stated: 'generic' is assumed",
    )
    assert scenario.job.software.id == "generic"
