"""Arguments of Megatron-LM: names that it has, values that are the plan's."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.frameworks.export import export_plan
from parsim.frameworks.export.megatron import layout
from parsim.plan import CpCommType, Plan, Recompute
from parsim.scenario import Scenario
from tests.parsim.frameworks.export.exported import flags_of, names, planned

PLANS: list[dict[str, Any]] = [
    {},
    {"zero_stage": 1, "dp_replicate": 1, "dp_shard": 16, "overlap_grad_reduce": True},
    {"zero_stage": 1, "dp_replicate": 4, "dp_shard": 4},
    {"zero_stage": 1, "dp_replicate": 1, "dp_shard": 16, "optimizer_offload": True},
    {"recompute": Recompute.FULL, "precision": "fp16"},
    {"cp": 2, "dp_replicate": 32, "cp_comm_type": CpCommType.A2A},
    {"recompute": Recompute.NONE, "recompute_modules": ("mlp", "layernorm")},
    {"offload_layers": 4, "offload_modules": ("core_attn", "attn_proj")},
    {"schedule": "1f1b", "v": 1, "stage_layers": (11, 13, 12, 12, 12, 12, 12, 12)},
    {"overlap_p2p": True, "rank_order": ("dp_replicate", "dp_shard", "pp", "cp", "tp")},
]


@pytest.mark.parametrize("changes", PLANS)
def test_megatron_names_are_megatrons(gpt3: Scenario, changes: dict[str, Any]) -> None:
    flags = flags_of(export_plan(gpt3, planned(gpt3, **changes), "megatron"))
    assert set(flags) <= set(names("megatron-core-0.19.2.json")["flags"])
    virtual = [name for name in flags if "virtual" in name or "layout" in name]
    assert len(virtual) <= 1


def test_megatron_values_are_the_plans(gpt3: Scenario) -> None:
    flags = flags_of(export_plan(gpt3, gpt3.fixed_plan(), "megatron"))
    assert flags["--tensor-model-parallel-size"] == ["8"]
    assert flags["--num-virtual-stages-per-pipeline-rank"] == ["3"]
    assert flags["--micro-batch-size"] == ["1"]
    assert flags["--global-batch-size"] == ["1536"]
    assert flags["--sequence-parallel"] == []
    assert flags["--recompute-modules"] == ["core_attn"]


@pytest.mark.parametrize(
    ("changes", "flags", "bridge"),
    [
        ({"gradient_precision": "same", "reduce_precision": "same"}, ["--grad-reduce-in-bf16"], 0),
        (
            {"gradient_precision": "fp32", "reduce_precision": "same"},
            ["--accumulate-allreduce-grads-in-fp32"],
            1,
        ),
        (
            {"gradient_precision": "fp32", "reduce_precision": "fp32", "precision": "fp16"},
            ["--accumulate-allreduce-grads-in-fp32"],
            1,
        ),
        (
            {"gradient_precision": "same", "reduce_precision": "same", "precision": "fp16"},
            [],
            0,
        ),
    ],
)
def test_precision_of_gradients(
    gpt3: Scenario, changes: dict[str, Any], flags: list[str], bridge: bool
) -> None:
    """Megatron has one buffer for both; with --bf16 alone it would be fp32."""
    plan = planned(gpt3, **changes)
    text, overrides = (export_plan(gpt3, plan, name) for name in ("megatron", "megatron-bridge"))
    assert [name for name in flags_of(text) if "-grad" in name and "overlap" not in name] == flags
    assert f"ddp.grad_reduce_in_fp32={str(bool(bridge)).lower()}" in overrides.splitlines()
    assert "mixed_precision.grad_reduce_in_fp32=false" in overrides or bridge
    two = plan.gradient_precision != plan.reduce_precision
    assert ("# reduce_precision same" in text) == ("# reduce_precision same" in overrides) == two


def test_an_optimizer_on_the_host_in_megatrons_words(gpt3: Scenario) -> None:
    shares = {"zero_stage": 1, "dp_replicate": 1, "dp_shard": 16}
    plan = planned(gpt3, **shares, optimizer_offload=True)
    flags = flags_of(export_plan(gpt3, plan, "megatron"))
    wanted = {"--optimizer-cpu-offload", "--use-precision-aware-optimizer"}
    assert wanted | {"--use-distributed-optimizer"} <= set(flags)
    overrides = export_plan(gpt3, plan, "megatron-bridge").splitlines()
    fields = ("optimizer_cpu_offload", "use_precision_aware_optimizer")
    assert {f"optimizer.{name}=true" for name in fields} <= set(overrides)
    beside = flags_of(export_plan(gpt3, replace(plan, optimizer_offload=False), "megatron"))
    assert wanted.isdisjoint(beside)


def test_layers_on_the_host_in_megatrons_words(gpt3: Scenario) -> None:
    whole = planned(gpt3, pp=1, v=1, schedule="1f1b", dp_replicate=128, offload_layers=20)
    whole = replace(whole, recompute=Recompute.NONE)
    flags = flags_of(export_plan(gpt3, whole, "megatron"))
    assert flags["--cpu-offloading"] == []
    assert flags["--cpu-offloading-num-layers"] == ["20"]
    overrides = export_plan(gpt3, whole, "megatron-bridge").splitlines()
    assert {"model.cpu_offloading=true", "model.cpu_offloading_num_layers=20"} <= set(overrides)
    fine = planned(gpt3, offload_layers=4, offload_modules=("core_attn", "attn_proj"))
    overrides = export_plan(gpt3, fine, "megatron-bridge").splitlines()
    assert "model.fine_grained_activation_offloading=true" in overrides
    assert "model.offload_modules=[core_attn,attn_proj]" in overrides


def test_sharded_parameters_need_their_checkpoint_format(llama: Scenario) -> None:
    """Megatron asserts it (`validate_args`), Megatron-Bridge where it saves or loads."""
    text, overrides = (
        export_plan(llama, llama.fixed_plan(), name) for name in ("megatron", "megatron-bridge")
    )
    flags = flags_of(text)
    assert flags["--use-megatron-fsdp"] == []
    assert flags["--ckpt-format"] == ["fsdp_dtensor"]
    assert set(flags) <= set(names("megatron-core-0.19.2.json")["flags"])
    assert "checkpoint.ckpt_format=fsdp_dtensor" in overrides.splitlines()
    replicated = planned(llama, zero_stage=1)
    assert "--ckpt-format" not in flags_of(export_plan(llama, replicated, "megatron"))


def test_megatron_runs_in_a_shell(gpt3: Scenario, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(export_plan(gpt3, gpt3.fixed_plan(), "megatron"), encoding="utf-8")
    words = ("bash", "-c", f'source {file} && printf "%s\\n" "${{MEGATRON_ARGS[@]}}"')
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert printed.split()[:2] == ["--num-layers", "96"]


def test_megatron_layout_of_unequal_stages() -> None:
    assert layout(Plan(pp=2, stage_layers=(1, 2)), 3) == "Et|ttL"
    assert layout(Plan(pp=2, v=2, stage_layers=(0, 2, 1, 0)), 3) == "E|tt|t|L"
    assert layout(Plan(pp=2, stage_layers=(1, 2)), 3, predicted=1) == "Et|tmL"


def test_megatron_bridge_names(gpt3: Scenario) -> None:
    known = names("megatron-core-0.19.2.json")
    known["model"] += ["seq_length"]  # of the model's provider
    # of Core's OptimizerConfig
    known["optimizer"] = ["optimizer", "sgd_momentum", "clip_grad", "optimizer_cpu_offload"]
    known["optimizer"] += ["use_precision_aware_optimizer"]
    known["checkpoint"] = ["ckpt_format"]  # of Megatron-Bridge's CheckpointConfig
    fully: dict[str, Any] = {"pp": 1, "v": 1, "schedule": "1f1b", "zero_stage": 3, "dp_shard": 128}
    fully["dp_replicate"] = 1
    for changes in (*PLANS, fully):
        text = export_plan(gpt3, planned(gpt3, **changes), "megatron-bridge")
        for line in (line for line in text.splitlines() if line and not line.startswith("#")):
            block, _, field = line.partition("=")[0].partition(".")
            assert field in known[block], line
