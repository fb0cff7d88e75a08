"""Every shipped scenario reads, and its plan is legal."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.plan.rules.violation import check_plan
from parsim.scenario import load_scenario, scenario_text

FOLDER = Path(__file__).parent.parent.parent.parent / "scenarios"

# name -> (devices, parameters in billions to three digits, plan)
SHIPPED = {
    "bert-large-dgx-1v": (8, 0.336, "tp1 pp1 dp8 mb8 m8 no-pipeline"),
    "bert-large-parameter-server": (
        16,
        0.336,
        "tp1 pp1 dp16 mb8 m1 no-pipeline parameter_server servers=2",
    ),
    "gpt-6x8x64-hybrid": (
        3072,
        1010,
        "tp8 pp64 dp6 mb1 m512 interleaved_1f1b v2 zero1 sp recompute-selective",
    ),
    "llama3-70b-gb200-offload": (
        64,
        70.6,
        "tp1 pp1 dp64 mb2 m2 no-pipeline zero3 offload48",
    ),
    "gpt2-small-cp-cpu": (2, 0.124, "tp1 pp1 dp1 cp2 mb1 m2 no-pipeline"),
    "gpt2-small-cpu": (2, 0.124, "tp1 pp2 dp1 mb1 m4 1f1b"),
    "gpt2-zero-bubble-cpu": (2, 0.124, "tp1 pp2 dp1 mb1 m4 gpt2-zero-bubble-cpu.csv"),
    "gpt2-zb-v-cpu": (2, 0.124, "tp1 pp2 dp1 mb1 m8 zb_v v2"),
    "gpt3-175b-dgx-a100": (
        1024,
        175,
        "tp8 pp8 dp16 mb1 m96 interleaved_1f1b v3 sp recompute-selective",
    ),
    "deepseek-small-cpu": (2, 0.0011, "tp1 pp1 dp2 ep2 mb2 m2 no-pipeline zero3"),
    "deepseek-v3-hgx-h800": (
        2048,
        671,
        "tp1 pp16 dp128 ep64 mb1 m120 dualpipe_v v2 zero1 "
        "recompute-layernorm recompute-mla_up_proj recompute-moe_act",
    ),
    "llama2-7b-shared-fabric": (32, 6.74, "tp8 pp1 dp4 mb2 m4 no-pipeline recompute-selective"),
    "llama3-70b-dgx-h100": (
        64,
        70.6,
        "tp4 pp4 dp4 mb1 m32 interleaved_1f1b v5 zero1 sp recompute-full",
    ),
    "llama3-8b-tpu-v5e": (256, 8.03, "tp1 pp1 dp256 mb1 m1 no-pipeline zero3 recompute-full"),
    "llama3-70b-lora-dgx-h100": (8, 70.6, "tp2 pp4 dp1 mb1 m32 interleaved_1f1b v20"),
    "llama3-70b-mi300x": (64, 70.6, "tp8 pp1 dp8 mb2 m8 no-pipeline zero1 sp"),
    "llama3-70b-h100-a100": (
        32,
        70.6,
        "tp8 pp4 dp1 mb1 m64 1f1b sp recompute-full on fast+slow cut 28-28-12-12",
    ),
    "llama3-8b-fp8-dgx-h100": (8, 8.03, "tp1 pp1 dp4 cp2 mb1 m32 no-pipeline zero1"),
    "llama3-8b-dgx-h100": (8, 8.03, "tp1 pp1 dp8 mb1 m2 no-pipeline zero3"),
    "llama3.1-405b-dgx-h100": (
        16384,
        406,
        "tp8 pp16 dp128 mb1 m16 interleaved_1f1b v4 zero1 sp recompute-full",
    ),
    "mixture-small-cpu": (2, 0.0589, "tp1 pp1 dp2 ep2 mb2 m2 no-pipeline"),
    "inception-v3-branches-dgx-1v": (
        8,
        0.0272,
        "tp1 pp1 dp8 mb32 m1 no-pipeline branch_parallel devices=2",
    ),
    "alexnet-one-weird-trick-dgx-1v": (
        8,
        0.0611,
        "tp1 pp1 dp8 mb128 m1 no-pipeline layout devices=8",
    ),
    "many-classes-small-cpu": (
        2,
        0.0014,
        "tp1 pp1 dp2 mb8 m2 no-pipeline layout devices=2 signatures=1 stated",
    ),
    "multi-task-small-cpu": (
        2,
        0.000284,
        "tp1 pp1 dp2 mb8 m2 no-pipeline branch_parallel devices=2",
    ),
    "resnet50-dgx-1v": (8, 0.0256, "tp1 pp1 dp8 mb256 m1 no-pipeline"),
    "resnet18-small-cpu": (2, 0.0112, "tp1 pp1 dp2 mb8 m1 no-pipeline sync-bn"),
    "resnet101-gpipe-p40": (4, 0.0445, "tp1 pp4 dp1 mb22 m256 gpipe recompute-full"),
    "qwen3-30b-a3b-dgx-h100": (16, 30.5, "tp1 pp1 dp16 ep16 mb1 m64 no-pipeline zero1"),
    "megatron-1t-dgx-a100": (3072, 1010, "tp8 pp64 dp6 mb1 m512 1f1b recompute-full"),
}


def test_the_folder_holds_just_these() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_is_what_its_name_says(name: str) -> None:
    devices, billions, label = SHIPPED[name]
    scenario = load_scenario(FOLDER / f"{name}.yaml")
    assert scenario.plan is not None
    assert scenario.job.cluster.num_devices == devices
    assert f"{scenario.job.model.parameters / 1e9:.3g}" == f"{billions:.3g}"
    assert scenario.plan.label() == label
    assert scenario.plan.global_batch_size == scenario.global_batch_size
    check_plan(scenario.plan, scenario.job.model, scenario.job.cluster)


@pytest.mark.parametrize("name", SHIPPED)
def test_nothing_is_left_to_assumption(name: str) -> None:
    scenario = load_scenario(FOLDER / f"{name}.yaml")
    assert scenario.notes == ()
    assert scenario.description


@pytest.mark.parametrize("name", SHIPPED)
def test_its_plan_can_be_saved(name: str, tmp_path: Path) -> None:
    first = load_scenario(FOLDER / f"{name}.yaml")
    assert first.plan is not None
    (tmp_path / "saved.yaml").write_text(scenario_text(first, first.plan), encoding="utf-8")
    again = load_scenario(tmp_path / "saved.yaml")
    assert (again.plan, again.job) == (first.plan, first.job)


def test_the_main_job_searches_every_legal_plan() -> None:
    space = load_scenario(FOLDER / "gpt3-175b-dgx-a100.yaml").space
    assert space is not None
    free = (space.tp, space.pp, space.cp, space.microbatch_size, space.v, space.schedule)
    assert (*free, space.zero_stage) == (None,) * 7
    assert (len(space.recompute), len(space.sequence_parallel)) == (3, 2)
