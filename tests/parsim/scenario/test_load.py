"""What a scenario file becomes: the records, their defaults and what is derived."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsim.cluster.hardware import IntraNode, Network
from parsim.cost.software import changed_switches, software
from parsim.errors import PlanError, ScenarioError
from parsim.model.config.file import read_config
from parsim.model.huggingface import spec_from_config
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec
from parsim.plan import CpCommType, Plan, PlanSpace, Recompute
from parsim.scenario import Scenario, load_scenario, scenario_text
from parsim.scenario.schema.cluster import IntraBlock, NetworkBlock
from parsim.scenario.schema.model import ModelBlock
from parsim.scenario.schema.plan import PlanBlock, SearchBlock
from parsim.space.axes import SETTINGS

ROOT = Path(__file__).parent.parent.parent.parent
CONFIGS = Path(__file__).parent.parent / "model" / "configs"


def tree(**blocks: Any) -> dict[str, Any]:
    """GPT-2 on one DGX A100; a block given here replaces the default one, None takes it away."""
    default: dict[str, Any] = {
        "model": {"name": "gpt2"},
        "cluster": {"system": "dgx-a100", "nodes": 1},
        "software": "generic",
        "training": {"global_batch_size": 16, "precision": "bf16"},
        "plan": {},
    }
    return {key: block for key, block in {**default, **blocks}.items() if block is not None}


def load(folder: Path, overrides: dict[str, Any] | None = None, **blocks: Any) -> Scenario:
    """JSON is YAML 1.2, so the test's own dicts are scenario files."""
    path = folder / "s.yaml"
    path.write_text(json.dumps(tree(**blocks), indent="\t"), encoding="utf-8")
    return load_scenario(path, overrides or {})


def plan_of(folder: Path, **blocks: Any) -> Plan:
    plan = load(folder, **blocks).plan
    assert plan is not None
    return plan


def space_of(folder: Path, **blocks: Any) -> PlanSpace:
    space = load(folder, **blocks).space
    assert space is not None
    return space


def test_the_parts_of_a_scenario(tmp_path: Path) -> None:
    scenario = load(tmp_path, description="  one line\n")
    assert (scenario.name, scenario.description, scenario.path) == (
        "s",
        "one line",
        tmp_path / "s.yaml",
    )
    assert scenario.spec == model_spec("gpt2")
    assert scenario.job.model.parameters == 124_439_808
    assert (scenario.job.cluster.num_devices, scenario.job.device.id) == (8, "a100-sxm-80gb")
    assert (scenario.job.software.id, scenario.global_batch_size) == ("generic", 16)
    assert (scenario.space, scenario.notes, scenario.catalog) == (None, (), ())


def test_yaml_and_json_read_the_same(tmp_path: Path) -> None:
    text = """\
    model: {name: gpt2}   # a comment
    cluster:
      system: dgx-a100
      nodes: 1
    software: generic
    training:
      global_batch_size: 16
      precision: bf16
    plan:
    """
    (tmp_path / "y.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "bom.yaml").write_text(text, encoding="utf-8-sig")
    from_yaml, from_json = load_scenario(tmp_path / "y.yaml"), load(tmp_path)
    assert (from_yaml.job, from_yaml.plan) == (from_json.job, from_json.plan)
    assert load_scenario(str(tmp_path / "bom.yaml")).plan == from_json.plan


def test_importing_the_reader_loads_no_parser() -> None:
    code = (
        "import sys, parsim.scenario; "
        "print(sorted({'pydantic', 'ruamel.yaml', 'matplotlib', 'simpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# ------------------------------------------------------------------------------------- the model


def test_fields_of_a_catalog_model_can_be_overridden(tmp_path: Path) -> None:
    spec = load(tmp_path, model={"name": "gpt2", "seq_len": 128, "dropout": False}).spec
    assert (spec.seq_len, spec.positions, spec.dropout) == (128, 1024, False)


def test_the_model_block_has_every_field_of_a_spec() -> None:
    names = {field.name for field in fields(TransformerSpec)}
    assert set(ModelBlock.model_fields) == names | {
        "config",
        "family",
        "file",
        "image_size",
        "num_classes",
    }


def test_another_number_of_heads_has_as_many_keys_and_values_where_each_had_its_own(
    tmp_path: Path,
) -> None:
    alone = load(tmp_path, model={"name": "gpt2", "num_attention_heads": 24})
    assert alone.job.model.attention is not None
    assert (alone.job.model.attention.heads, alone.job.model.attention.kv_heads) == (24, 24)
    shared = load(tmp_path, model={"name": "llama3-8b", "num_attention_heads": 64})
    assert shared.job.model.attention is not None
    assert shared.job.model.attention.kv_heads == 8
    assert "num_key_value_heads=8" in " ".join(shared.notes)


@pytest.mark.parametrize(
    ("name", "key", "value", "needed"),
    [
        ("gpt2", "experts_per_token", 2, "num_experts"),
        ("gpt2", "shared_expert_ffn_hidden_size", 512, "num_experts"),
        ("llama3-8b", "value_head_dim", 64, "kv_lora_rank"),
        ("llama3-8b", "q_lora_rank", 64, "kv_lora_rank"),
        ("llama3-8b", "full_every", 2, "window"),
        ("gpt2", "rope_factor", 8.0, "rope_scaling"),
        ("llama3-8b", "mamba_heads", 8, "layer_pattern"),
        ("mixtral-8x7b", "groups_per_token", 1, None),
        ("mistral-7b", "full_every", 2, None),
        ("qwen3-30b-a3b", "num_experts", 0, None),
    ],
)
def test_a_key_without_effect_names_the_one_it_needs(
    tmp_path: Path, name: str, key: str, value: float, needed: str | None
) -> None:
    if needed is None:
        load(tmp_path, model={"name": name, key: value})
        return
    with pytest.raises(ScenarioError, match=rf"model\.{key} has no effect without {needed}"):
        load(tmp_path, model={"name": name, key: value})


def test_widths_that_stay_are_noted(tmp_path: Path) -> None:
    scenario = load(tmp_path, model={"name": "gpt2", "hidden_size": 1536})
    assert scenario.notes == (
        "model gpt2 with another hidden_size; as before: ffn_hidden_size=3072, head_dim=64, "
        "num_attention_heads=12",
    )


def test_a_config_is_found_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    text = (CONFIGS / "llama3-8b.json").read_text(encoding="utf-8")
    (tmp_path / "models" / "mine.json").write_text(text, encoding="utf-8")
    spec = load(tmp_path, model={"config": "models/mine.json", "seq_len": 2048}).spec
    config = read_config(CONFIGS / "llama3-8b.json")
    assert spec == spec_from_config(config, name="mine", seq_len=2048)


def test_a_model_can_be_named_by_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative to the scenario; in an override, to where one is."""
    (tmp_path / "models" / "mine").mkdir(parents=True)
    text = (CONFIGS / "llama3-8b.json").read_text(encoding="utf-8")
    (tmp_path / "models" / "mine" / "config.json").write_text(text, encoding="utf-8")
    expected = spec_from_config(read_config(CONFIGS / "llama3-8b.json"), name="mine", seq_len=2048)
    for name in ("models/mine/config.json", "models/mine"):
        assert load(tmp_path, model={"name": name, "seq_len": 2048}).spec == expected
    monkeypatch.chdir(tmp_path / "models")
    for key in ("model.name", "model.config"):
        model = {"name": "gpt2", "seq_len": 2048} if key == "model.name" else {"seq_len": 2048}
        assert load(tmp_path, {key: "mine/config.json"}, model=model).spec == expected
    with pytest.raises(ScenarioError, match=r"model\.name .*no\.json: no such file"):
        load(tmp_path, model={"name": "no.json"})


def test_a_config_keeps_its_notes_and_takes_a_name(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "qwen2-7b.json").read_text())
    changed = config | {"use_sliding_window": True, "sliding_window": 4096}
    (tmp_path / "windowed.json").write_text(json.dumps(changed))
    named = {"config": str(tmp_path / "windowed.json"), "name": "m", "seq_len": 8192}
    scenario = load(tmp_path, model=named)
    assert scenario.spec.name == "m"
    assert scenario.notes == (
        "sliding_window=4096 is not modelled: attention is costed over all 8192 tokens of a "
        "sequence",
    )


def test_an_inline_model_fills_in_like_the_catalog(tmp_path: Path) -> None:
    sizes = {
        "num_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "vocab_size": 50257,
        "seq_len": 1024,
        "dropout": True,
    }
    spec = load(tmp_path, model={"family": "gpt2", "name": "gpt2", **sizes}).spec
    assert spec == model_spec("gpt2")


def test_an_inline_llama_has_the_switches_of_its_family(tmp_path: Path) -> None:
    sizes = {
        "num_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "vocab_size": 100,
        "seq_len": 32,
        "num_key_value_heads": 4,
        "head_dim": 16,
    }
    spec = load(tmp_path, model={"family": "llama", **sizes}).spec
    assert (spec.name, spec.rope, spec.gated_mlp, spec.positions) == ("s", True, True, 0)
    assert (spec.head_dim, spec.num_key_value_heads, spec.ffn_hidden_size) == (16, 4, 256)


# ----------------------------------------------------------------------------------- the cluster


def test_units_of_the_links_are_read(tmp_path: Path) -> None:
    cluster = {
        "system": "dgx-a100",
        "nodes": 2,
        "intra": {"bandwidth": "250GB/s", "efficiency": 0.7, "nvls": True},
        "network": {"nic_bandwidth": "400Gb/s", "latency": "5us", "oversubscription": 2},
    }
    system = load(tmp_path, cluster=cluster).job.system
    assert (system.intra.bandwidth, system.intra.efficiency, system.intra.nvls) == (
        250e9,
        0.7,
        True,
    )
    assert system.network is not None
    assert (system.network.nic_bandwidth, system.network.latency) == (50e9, 5e-6)
    assert (system.network.oversubscription, system.network.nics_per_node) == (2.0, 8)


def test_unused_devices_leave_their_interfaces_unused(tmp_path: Path) -> None:
    cluster = {"system": "dgx-a100", "nodes": 4, "devices_per_node": 2}
    scenario = load(tmp_path, cluster=cluster)
    assert scenario.job.cluster.num_devices == 8
    assert scenario.job.system.network is not None
    assert scenario.job.system.network.nics_per_node == 2
    assert scenario.notes == (
        "devices_per_node=2 of 8: 2 of 8 network interfaces of a node are used",
    )


def test_the_number_of_interfaces_can_be_stated(tmp_path: Path) -> None:
    cluster = {
        "system": "dgx-a100",
        "nodes": 4,
        "devices_per_node": 2,
        "network": {"nics_per_node": 8},
    }
    scenario = load(tmp_path, cluster=cluster)
    assert scenario.job.system.network is not None
    assert (scenario.job.system.network.nics_per_node, scenario.notes) == (8, ())


def test_another_device_in_a_system(tmp_path: Path) -> None:
    cluster = {"system": "dgx-a100", "nodes": 1, "device": "a100-sxm-40gb"}
    assert load(tmp_path, cluster=cluster).job.device.id == "a100-sxm-40gb"


def test_a_catalog_is_found_beside_the_scenario(tmp_path: Path) -> None:
    mine = "systems: {mine: {from: dgx-a100, devices_per_node: 4}}\n"
    (tmp_path / "mine.yaml").write_text(mine, encoding="utf-8")
    scenario = load(tmp_path, cluster={"system": "mine", "nodes": 1, "catalog": ["mine.yaml"]})
    assert (scenario.job.system.id, scenario.job.cluster.num_devices) == ("mine", 4)
    assert scenario.catalog == (tmp_path.resolve() / "mine.yaml",)


# ---------------------------------------------------------------------------------- the software


def test_software_decides_attention_and_the_switches_of_the_plan(tmp_path: Path) -> None:
    scenario = load(tmp_path, software="megatron-2021")
    assert scenario.plan is not None
    assert not scenario.spec.fused_attention
    assert (scenario.plan.reduce_precision, scenario.plan.scatter_p2p) == ("same", True)
    assert (scenario.plan.overlap_grad_reduce, scenario.plan.overlap_p2p) == (False, False)


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


# -------------------------------------------------------------------------------------- the plan


def test_an_empty_plan_is_data_parallel(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, plan={})
    assert (plan.dp_replicate, plan.dp_shard, plan.num_microbatches) == (8, 1, 2)


@pytest.mark.parametrize(
    ("written", "replicate", "shard"),
    [
        ({"dp": 8}, 8, 1),
        ({"tp": 2, "dp": 4}, 4, 1),
        ({"tp": 2, "pp": 2}, 2, 1),
        ({"zero_stage": 3, "dp": 8}, 1, 8),
        ({"zero_stage": 1}, 1, 8),
        ({"zero_stage": 3, "dp_shard": 4}, 2, 4),
        ({"zero_stage": 3, "dp_replicate": 4}, 4, 2),
        ({"zero_stage": 3, "dp_replicate": 2, "dp_shard": 4}, 2, 4),
        ({"dp_replicate": 8}, 8, 1),
    ],
)
def test_the_data_parallel_degrees(
    tmp_path: Path, written: dict[str, int], replicate: int, shard: int
) -> None:
    plan = plan_of(tmp_path, plan=written)
    assert (plan.dp_replicate, plan.dp_shard) == (replicate, shard)


def test_every_field_of_a_plan_can_be_written(tmp_path: Path) -> None:
    written: dict[str, Any] = {
        "tp": 2,
        "pp": 2,
        "dp_replicate": 1,
        "dp_shard": 2,
        "cp": 1,
        "cp_comm_type": "all_gather",
        "ep": 1,
        "etp": 1,
        "microbatch_size": 2,
        "num_microbatches": 4,
        "offload_layers": 2,
        "offload_modules": ["core_attn"],
        "recompute_layers": 0,
        "schedule": "interleaved_1f1b",
        "v": 2,
        "action_times": [1.0, 0.9, 0.8, 0.05, 0.5],
        "stage_layers": [2, 4, 4, 2],
        "zero_stage": 1,
        "sequence_parallel": True,
        "recompute": "selective",
        "recompute_modules": ["layernorm"],
        "precision": "fp16",
        "gradient_precision": "same",
        "reduce_precision": "same",
        "bucket_size": "25MB",
        "overlap_grad_reduce": False,
        "overlap_param_gather": False,
        "overlap_p2p": False,
        "scatter_p2p": True,
        "rank_order": ["dp_replicate", "dp_shard", "pp", "cp", "tp"],
        "sync_batch_norm": True,
    }
    renamed = {"bucket_size": "bucket_bytes"}
    values = {renamed.get(key, key): value for key, value in written.items()}
    values["action_times"] = (1.0, 0.9, 0.8, 0.05, 0.5)
    values |= {"stage_layers": (2, 4, 4, 2), "recompute": Recompute.SELECTIVE, "bucket_bytes": 25e6}
    values |= {"offload_modules": ("core_attn",), "cp_comm_type": CpCommType.ALL_GATHER}
    values |= {"rank_order": tuple(written["rank_order"]), "recompute_modules": ("layernorm",)}
    elsewhere = {"actions", "node_order", "replica_microbatches"}  # from a file; test_mixed.py
    elsewhere |= {"strategy", "stages"}  # test_plan.py, test_stages.py
    assert set(values) == {field.name for field in fields(Plan)} - elsewhere
    assert plan_of(tmp_path, plan=written) == Plan(**values)


def test_the_plan_block_knows_every_field_of_a_plan() -> None:
    names = {field.name for field in fields(Plan)} - {"bucket_bytes", "actions"}
    assert set(PlanBlock.model_fields) == names | {"bucket_size", "dp"}


# ------------------------------------------------------------------------------------ the search


def test_an_empty_search_is_every_plan(tmp_path: Path) -> None:
    space = space_of(tmp_path, plan=None, search={})
    common = Plan(overlap_p2p=True)  # as generic software does
    assert space == PlanSpace(global_batch_size=16, common=common)


def test_a_space_with_values(tmp_path: Path) -> None:
    written = {
        "tp": [1, 2],
        "pp": 2,
        "v": [1],
        "microbatch_size": 4,
        "schedule": "1f1b",
        "zero_stage": [0, 1],
        "recompute": ["none", "full"],
        "sequence_parallel": True,
        "memory_margin": 0.1,
        "common": {"bucket_size": "40MB"},
    }
    assert space_of(tmp_path, search=written) == PlanSpace(
        global_batch_size=16,
        tp=(1, 2),
        pp=(2,),
        v=(1,),
        microbatch_size=(4,),
        schedule=("1f1b",),
        zero_stage=(0, 1),
        recompute=(Recompute.NONE, Recompute.FULL),
        sequence_parallel=(True,),
        memory_margin=0.1,
        common=Plan(bucket_bytes=40e6, overlap_p2p=True),
    )


def test_the_search_block_knows_every_field_of_a_space() -> None:
    names = {field.name for field in fields(PlanSpace)} - {"global_batch_size", "varied"}
    assert set(SearchBlock.model_fields) == names | {"space", *SETTINGS}


def test_every_link_can_be_overridden() -> None:
    assert set(NetworkBlock.model_fields) == {field.name for field in fields(Network)}
    assert set(IntraBlock.model_fields) == {field.name for field in fields(IntraNode)}


def test_a_search_has_the_precision_of_the_training(tmp_path: Path) -> None:
    training = {"global_batch_size": 16, "precision": "fp16"}
    assert space_of(tmp_path, search={}, training=training).common.precision == "fp16"


# ----------------------------------------------------------------------------------- overrides


def test_overrides_are_yaml(tmp_path: Path) -> None:
    overrides = {
        "plan.tp": "2",
        "plan.recompute": "full",
        "search.tp": "[1, 2]",
        "cluster.network.oversubscription": "2",
    }
    scenario = load(tmp_path, overrides)
    assert scenario.plan is not None
    assert scenario.space is not None
    assert (scenario.plan.tp, scenario.plan.dp, scenario.plan.recompute) == (2, 4, Recompute.FULL)
    assert scenario.space.tp == (1, 2)
    assert scenario.job.system.network is not None
    assert scenario.job.system.network.oversubscription == 2


def test_a_name_alone_becomes_a_block_for_overrides_below_it(tmp_path: Path) -> None:
    """docs/scenarios.md: `--set software.expert_overlap=1.0` beside `software: megatron-bridge`."""
    scenario = load(tmp_path, {"software.expert_overlap": "1.0"}, software="megatron-bridge")
    assert changed_switches(scenario.job.software) == {"expert_overlap": 1.0}
    overrides = {"plan": "{strategy: local_sgd}", "plan.strategy.every": "4"}
    plan = load(tmp_path, overrides).plan
    assert plan is not None
    assert plan.strategy.label() == "local_sgd every=4"
    with pytest.raises(ScenarioError, match=r"s\.yaml:9:2 software 'nobody' is unknown"):
        load(tmp_path, {"software.compile": "true"}, software="nobody")


@pytest.mark.parametrize("nothing", ["null", "~", ""])
def test_an_override_of_null_takes_a_key_away(tmp_path: Path, nothing: str) -> None:
    plan = {"tp": 2, "dp": 4}
    scenario = load(tmp_path, {"plan.dp": nothing, "plan.tp": "4"}, plan=plan)
    assert scenario.plan is not None
    assert scenario.plan.dp == 2
    assert load(tmp_path, {"plan": nothing}, search={}).plan is None


def test_overrides_can_be_values_of_python(tmp_path: Path) -> None:
    overrides = {
        "plan.tp": 4,
        "plan.sequence_parallel": True,
        "plan.microbatch_size": np.int64(2),
        "model.seq_len": 512,
        "cluster.network": {"oversubscription": 1.5},
        "plan.rank_order": ("pp", "dp_replicate", "dp_shard", "cp", "tp"),
        "software": None,
        "cluster.catalog": [Path("mine.yaml")],
    }
    (tmp_path / "mine.yaml").write_text("devices: {mine: {from: t4}}\n", encoding="utf-8")
    scenario = load(tmp_path, overrides)
    plan = scenario.fixed_plan()
    assert (plan.tp, plan.dp, plan.microbatch_size, plan.sequence_parallel) == (4, 2, 2, True)
    assert (scenario.spec.seq_len, scenario.job.software.id) == (512, "generic")
    assert scenario.catalog == (tmp_path / "mine.yaml",)
    with pytest.raises(PlanError, match=r"^--set plan\.tp=5 plan tp=5 does not divide"):
        load(tmp_path, {"plan.tp": 5})
    with pytest.raises(ScenarioError, match=r"^--set plan\.tp cannot be a object; give a number"):
        load(tmp_path, {"plan.tp": object()})


def test_an_override_can_be_a_whole_block(tmp_path: Path) -> None:
    scenario = load(tmp_path, {"plan": "{tp: 4, microbatch_size: 2}"}, plan={"tp": 2})
    assert scenario.plan is not None
    assert (scenario.plan.tp, scenario.plan.microbatch_size) == (4, 2)
