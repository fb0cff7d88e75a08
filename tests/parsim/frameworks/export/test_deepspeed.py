"""Files of DeepSpeed and Accelerate, and scripts."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from ruamel.yaml import YAML

from parsim.errors import PlanError
from parsim.frameworks.export import export_plan
from parsim.scenario import Scenario, load_scenario
from parsim.schedule import schedule_of
from tests.parsim.frameworks.export.exported import MIXTURE, flags_of, names, planned


def test_deepspeed(llama: Scenario) -> None:
    document = json.loads(export_plan(llama, llama.fixed_plan(), "deepspeed"))
    plan = llama.fixed_plan()
    product = document["train_micro_batch_size_per_gpu"] * document["gradient_accumulation_steps"]
    assert document["train_batch_size"] == product * plan.dp == plan.global_batch_size
    assert document["zero_optimization"]["stage"] == 3


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"zero_stage": 1, "bucket_bytes": 1e6},
        {"zero_stage": 2, "dp_shard": 8, "optimizer_offload": True},
        {"zero_stage": 3, "dp_replicate": 2, "dp_shard": 4},
        {"pp": 2, "dp_shard": 4, "zero_stage": 1, "schedule": "1f1b", "precision": "fp16"},
        {"tp": 2, "cp": 2, "dp_shard": 2},
        {"ep": 4, "tp": 2, "dp_shard": 4, "zero_stage": 1},
    ],
    ids=str,
)
def test_deepspeed_names(llama: Scenario, changes: dict[str, Any]) -> None:
    known = names("deepspeed-0.19.6.json")
    document = json.loads(export_plan(llama, planned(llama, **changes), "deepspeed"))
    del document["_parsim"]
    assert set(document) <= set(known["top"])
    for block, values in document.items():
        if isinstance(values, dict):
            assert set(values) <= set(known[block]), block


def test_deepspeed_switches_experts_on(llama: Scenario) -> None:
    """AutoEP is off unless `enabled` says so."""
    plan = planned(llama, ep=4, zero_stage=2)
    document = json.loads(export_plan(llama, plan, "deepspeed"))
    assert document["expert_parallel"] == {"enabled": True, "autoep_size": 4}


def test_deepspeed_keeps_the_optimizer_on_the_host(llama: Scenario) -> None:
    plan = planned(llama, zero_stage=2, dp_shard=8, optimizer_offload=True)
    zero = json.loads(export_plan(llama, plan, "deepspeed"))["zero_optimization"]
    assert zero["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    other = json.loads(export_plan(llama, replace(plan, optimizer_offload=False), "deepspeed"))
    assert "offload_optimizer" not in other["zero_optimization"]


def test_accelerate(llama: Scenario) -> None:
    known = names("accelerate-1.15.0.json")
    hybrid = planned(llama, tp=2, dp_shard=4)
    for plan in (llama.fixed_plan(), hybrid):
        document = YAML(typ="safe").load(export_plan(llama, plan, "accelerate"))
        assert set(document) <= set(known["config"])
        inner = {**document.get("fsdp_config", {}), **document.get("parallelism_config", {})}
        assert set(inner) <= set(known["launch"])
        assert document["num_processes"] == plan.world_size
    sizes = document["parallelism_config"]
    assert (sizes["parallelism_config_tp_size"], sizes["parallelism_config_dp_shard_size"]) == (
        2,
        4,
    )


def test_megatron_gathers_no_tokens_and_computes_experts_together() -> None:
    """Its defaults are another job than was predicted."""
    scenario = load_scenario(MIXTURE)
    for ep in (1, 8):
        plan = planned(scenario, ep=ep)
        flags = flags_of(export_plan(scenario, plan, "megatron"))
        assert flags["--moe-token-dispatcher-type"] == ["alltoall"]
        assert flags["--moe-grouped-gemm"] == []
        overrides = export_plan(scenario, plan, "megatron-bridge").splitlines()
        assert "model.moe_token_dispatcher_type=alltoall" in overrides
        assert "model.moe_grouped_gemm=true" in overrides


def test_deepspeed_shares_states_in_groups_by_mics(llama: Scenario) -> None:
    """zero_hpz_partition_size shares them among all ranks, and is another plan."""
    plan = planned(llama, zero_stage=3, dp_replicate=2, dp_shard=4)
    zero = json.loads(export_plan(llama, plan, "deepspeed"))["zero_optimization"]
    assert (zero["mics_shard_size"], "zero_hpz_partition_size" in zero) == (4, False)
    beside = replace(plan, tp=2, dp_shard=2)
    with pytest.raises(PlanError, match="mics_shard_size divides all ranks"):
        export_plan(llama, beside, "deepspeed")


@pytest.mark.parametrize("target", ["torchrun", "sbatch"])
def test_scripts_start_all_ranks(gpt3: Scenario, target: str) -> None:
    text = export_plan(gpt3, gpt3.fixed_plan(), target)
    assert "--nnodes=128 --nproc-per-node=8" in text
    assert subprocess.run(("bash", "-n"), input=text, text=True, check=False).returncode == 0


def test_csv_is_the_schedule(gpt3: Scenario) -> None:
    plan = gpt3.fixed_plan()
    rows = export_plan(gpt3, plan, "csv").splitlines()
    assert len(rows) == plan.pp
    assert rows[0].split(",") == list(map(str, schedule_of(plan).ranks[0]))
