"""Launch files: their names are the framework's, values the plan's, and its rules are kept."""

from __future__ import annotations

import ast
import json
import shlex
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from parsim.cost.software import software, with_switches
from parsim.errors import InputError, PlanError
from parsim.frameworks.export import TARGETS, export_plan
from parsim.frameworks.export.megatron import layout
from parsim.frameworks.reading.torchtitan import torchtitan_job
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import RANK_ORDER, CpCommType, Plan, Recompute
from parsim.scenario import Scenario, load_scenario
from parsim.schedule import schedule_of
from tests.commands import GPT3, LLAMA, ROOT

NAMES = Path(__file__).parent.parent / "names"
MIXTURE = str(ROOT / "scenarios" / "qwen3-30b-a3b-dgx-h100.yaml")


def names(file: str) -> dict[str, list[str]]:
    """Names read from a release of the framework; `source` says which."""
    document: dict[str, list[str]] = json.loads((NAMES / file).read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def gpt3() -> Scenario:
    return load_scenario(GPT3)


@pytest.fixture(scope="module")
def llama() -> Scenario:
    return load_scenario(LLAMA)


def planned(scenario: Scenario, **changes: Any) -> Plan:
    return replace(scenario.fixed_plan(), **changes)


# --------------------------------------------------------------------------- Megatron


def flags_of(text: str) -> dict[str, list[str]]:
    """The flags of the array, and what stands behind each."""
    body = text[text.index("(") + 1 : text.rindex(")")]
    flags: dict[str, list[str]] = {}
    for line in body.strip().splitlines():
        name, *values = shlex.split(line)
        assert name not in flags
        flags[name] = values
    return flags


PLANS: list[dict[str, Any]] = [
    {},
    {"zero_stage": 1, "dp_replicate": 1, "dp_shard": 16, "overlap_grad_reduce": True},
    {"zero_stage": 1, "dp_replicate": 4, "dp_shard": 4},
    {"recompute": Recompute.FULL, "precision": "fp16"},
    {"cp": 2, "dp_replicate": 32, "cp_comm_type": CpCommType.A2A},
    {"recompute": Recompute.NONE, "recompute_modules": ("mlp", "layernorm")},
    {"offload_layers": 4, "offload_modules": ("core_attn", "attn_proj")},
    {"schedule": "1f1b", "v": 1, "stage_layers": (11, 13, 12, 12, 12, 12, 12, 12)},
    {"overlap_p2p": True, "rank_order": ("dp_replicate", "dp_shard", "pp", "cp", "tp")},
]


ZB_V: dict[str, Any] = {
    "tp": 2,
    "pp": 2,
    "dp_shard": 2,
    "zero_stage": 1,
    "num_microbatches": 8,
    "schedule": "zb_v",
    "v": 2,
}
"""A pipeline that torchtitan can run, with tensor and data parallelism."""
SHARDED = {"zero_stage": 1, "dp_shard": 16, "dp_replicate": 1}


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
    known["optimizer"] = ["optimizer", "sgd_momentum", "clip_grad"]  # of Core's OptimizerConfig
    known["checkpoint"] = ["ckpt_format"]  # of Megatron-Bridge's CheckpointConfig
    fully: dict[str, Any] = {"pp": 1, "v": 1, "schedule": "1f1b", "zero_stage": 3, "dp_shard": 128}
    fully["dp_replicate"] = 1
    for changes in (*PLANS, fully):
        text = export_plan(gpt3, planned(gpt3, **changes), "megatron-bridge")
        for line in (line for line in text.splitlines() if line and not line.startswith("#")):
            block, _, field = line.partition("=")[0].partition(".")
            assert field in known[block], line


# --------------------------------------------------------------------------- torchtitan


def keywords(text: str, call: str) -> dict[str, Any]:
    """Arguments of one call of a Python text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == call:
            return {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
    raise AssertionError(call)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recompute": Recompute.FULL},
        ZB_V,
        {"dp_replicate": 2, "dp_shard": 4},
    ],
)
def test_torchtitan(llama: Scenario, changes: dict[str, Any]) -> None:
    plan, known = planned(llama, **changes), names("torchtitan-0.3.0.json")
    text = export_plan(llama, plan, "torchtitan")
    parallel, training = keywords(text, "ParallelismConfig"), keywords(text, "TrainingConfig")
    assert set(parallel) <= set(known["ParallelismConfig"])
    assert set(training) <= set(known["TrainingConfig"])
    degrees = [
        parallel[f"{name}_degree"]
        for name in (
            *("data_parallel_replicate", "data_parallel_shard", "tensor_parallel"),
            *("context_parallel", "pipeline_parallel"),
        )
    ]
    assert degrees == [plan.dp_replicate, plan.dp_shard, plan.tp, plan.cp, plan.pp]
    assert training["global_batch_size"] == plan.global_batch_size
    each = training["local_batch_size"]
    assert each == (plan.microbatch_size if plan.pp == 1 else plan.global_batch_size // plan.dp)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recompute": Recompute.SELECTIVE},
        {**ZB_V, "sequence_parallel": True},
        {"dp_replicate": 2, "dp_shard": 4},
    ],
)
def test_torchtitan_before_its_python_files(
    llama: Scenario, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Every name is one of the release's, and what is read back is the plan."""
    plan, known = planned(llama, **changes), names("torchtitan-0.2.2.json")
    text = export_plan(llama, plan, "torchtitan-0.2")
    assert "# for torchtitan 0.2.2" in text
    document = tomllib.loads(text)
    for section, values in document.items():
        assert set(values) <= set(known[section])
    again = torchtitan_job(document)
    read = {name: value for name, value in again.plan.items() if name not in ("recompute", "v")}
    assert read == {name: getattr(plan, name) for name in read}
    assert again.plan["recompute"] == plan.recompute.name.lower()
    assert again.global_batch_size == plan.global_batch_size
    assert again.model["name"] == llama.job.model.name


@pytest.mark.parametrize(
    ("stack", "switches", "enabled", "overlapped"),
    [
        ("torchtitan", {}, True, False),
        ("torchtitan", {"compile": False}, False, False),
        ("torchtitan", {"tp_overlap": True}, True, True),
        ("torchtitan", {"tp_overlap": True, "compile": False}, False, False),
        ("executor-cuda", {}, False, False),
        ("generic", {}, True, False),
    ],
)
def test_torchtitan_compiles_what_was_predicted_as_compiled(
    llama: Scenario, stack: str, switches: dict[str, Any], enabled: bool, overlapped: bool
) -> None:
    """torch.compile is off in torchtitan where nothing is said."""
    job = replace(llama.job, software=with_switches(software(stack), switches))
    switched, plan = replace(llama, job=job), planned(llama, tp=2, dp_shard=4)
    plan = replace(plan, sequence_parallel=True)
    text = export_plan(switched, plan, "torchtitan")
    asked = {"enable": enabled, **({"enable_async_tensor_parallel": True} if overlapped else {})}
    assert keywords(text, "CompileConfig") == asked
    assert set(asked) <= set(names("torchtitan-0.3.0.json")["CompileConfig"])
    assert "import CompileConfig" in text
    document = tomllib.loads(export_plan(switched, plan, "torchtitan-0.2"))
    assert document["compile"] == {"enable": enabled}
    assert document["parallelism"].get("enable_async_tensor_parallel", False) is overlapped
    again = torchtitan_job(document).software
    if stack == "torchtitan":
        assert (again == "torchtitan") == (not switches)


# --------------------------------------------------------------------------- the others


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


@pytest.mark.parametrize(
    ("target", "changes", "message"),
    [
        ("megatron", {"schedule": "zb_v", "v": 2}, "schedule zb_v; it has 1f1b and interleaved"),
        ("megatron", {"zero_stage": 3, "dp_shard": 16, "dp_replicate": 1}, "zero_stage=3 with pp"),
        ("megatron", {"cp": 3}, "seq_len=2048 is not divisible by 2 x cp=6"),
        ("megatron", {"pp": 2}, "interleaving with pp=2 needs overlapped messages"),
        ("megatron", {"rank_order": RANK_ORDER[::-1]}, "rank_order=tp-cp"),
        ("torchtitan", {"pp": 1, "zero_stage": 1}, "zero_stage=1; it replicates"),
        ("torchtitan-0.2", {"pp": 1, "zero_stage": 1}, "zero_stage=1; it replicates"),
        ("torchtitan", {"zero_stage": 2}, "zero_stage=2 with pp=8; it replicates"),
        ("torchtitan-0.2", {"zero_stage": 3}, "zero_stage=3 with pp=8; it replicates"),
        ("torchtitan-0.2", {**SHARDED, "sequence_parallel": False}, "0.2.2 has no switch for it"),
        ("torchtitan", {}, "precision=bf16 with zero_stage=0; with tensor or pipeline"),
        ("torchtitan", {"precision": "fp32", "cp": 2}, "zero_stage=0 with cp=2; its FSDP shards"),
        ("torchtitan", {"schedule": "bpipe", "v": 1}, "schedule bpipe; it has gpipe"),
        ("torchtitan", {"precision": "fp16"}, "precision=fp16; it has bfloat16 and float32"),
        ("accelerate", {"precision": "nvfp4"}, "precision=nvfp4; its mixed_precision is"),
        ("csv", {"schedule": "bpipe", "v": 1}, "schedule bpipe; PyTorch has no actions that move"),
        ("torchtitan", {"schedule": "zb_h1", "v": 1}, "schedule zb_h1; it has gpipe"),
        ("deepspeed", {}, "schedule interleaved_1f1b; its pipelines have 1f1b"),
        ("deepspeed", {"schedule": "1f1b", "v": 1, "ep": 8}, "ep=8 with tp=8 excludes pp=8"),
        ("deepspeed", {"pp": 1, "ep": 8, "dp_replicate": 64, "cp": 2}, "ep=8 with .* cp=2"),
        ("deepspeed", {"pp": 1, "ep": 8, "etp": 2}, "etp=2; it splits no experts"),
        ("accelerate", {}, "pp=8; it has no pipelines of its own"),
        ("accelerate", {"pp": 1, "dp_replicate": 128}, "needs dp_shard above 1"),
        (
            "accelerate",
            {"pp": 1, "cp": 2, "dp_shard": 2, "cp_comm_type": CpCommType.A2A},
            "gathers keys and values or",
        ),
        ("torchtitan", {"cp": 2, "cp_comm_type": CpCommType.A2A}, "gathers keys and values or"),
        ("megatron", {"replica_microbatches": (96,) * 16}, "replicas on unlike nodes"),
        ("megatron", {"offload_layers": 2}, "--cpu-offloading forbids; name offload_modules"),
        (
            "megatron",
            {"offload_layers": 2, "offload_modules": ("core_attn",)},
            "it moves those of all: offload_layers=4",
        ),
        ("megatron", {"offload_layers": 4, "offload_modules": ("mlp",)}, "no name of its own"),
        ("torchtitan", {"offload_layers": 2}, "no switch that moves activations"),
        ("torchtitan", {"recompute_layers": 2}, "no switch that recomputes some layers"),
        (
            "megatron",
            {"recompute": Recompute.SELECTIVE, "recompute_layers": 2},
            "beside selective recomputation of the other layers",
        ),
    ],
)
def test_rules(gpt3: Scenario, target: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=f"^{target} cannot run .*{message}"):
        export_plan(gpt3, planned(gpt3, **changes), target)


@pytest.mark.parametrize("target", ["torchtitan", "deepspeed", "accelerate"])
def test_targets_that_copy_no_key_value_heads(target: str) -> None:
    scenario = load_scenario(LLAMA)
    assert isinstance(scenario.model, TransformerSpec)
    spec = replace(scenario.model, num_key_value_heads=2)
    job = replace(scenario.job, model=build_transformer(spec), software=software("generic"))
    grouped = replace(scenario, model=spec, job=job)
    sizes: dict[str, Any] = {"dp_replicate": 1, "dp_shard": 2, "zero_stage": 3, "cp": 1}
    plan = planned(grouped, tp=4, pp=1, v=1, schedule="1f1b", sequence_parallel=True, **sizes)
    with pytest.raises(PlanError, match=r"tp=4 is more than num_key_value_heads=2, .* at most 2"):
        export_plan(grouped, plan, target)
    assert "--num-query-groups 2" in export_plan(grouped, plan, "megatron")
    assert export_plan(grouped, replace(plan, tp=2, dp_shard=4), target)


def test_models_that_are_no_transformers() -> None:
    """No plan makes them one, so none is advised; their samples have no tokens."""
    images = load_scenario(ROOT / "scenarios" / "resnet50-dgx-1v.yaml")
    for target in ("megatron", "torchtitan"):
        with pytest.raises(PlanError, match=r"trains transformers; resnet50 is none$"):
            export_plan(images, images.fixed_plan(), target)
    text = export_plan(images, images.fixed_plan(), "deepspeed")
    assert f"global batch {images.fixed_plan().global_batch_size} samples; written" in text


def test_experts_borrow_ranks() -> None:
    mixture = load_scenario(MIXTURE)
    plan = planned(mixture, tp=1, sequence_parallel=False, ep=16, dp_shard=8, zero_stage=3)
    with pytest.raises(PlanError, match="ep=16 does not divide dp_shard x cp x tp = 8"):
        export_plan(mixture, replace(plan, pp=1, dp_replicate=1, etp=1), "torchtitan")


def test_an_unknown_target(gpt3: Scenario) -> None:
    with pytest.raises(InputError, match=r"unknown target 'nemo'; allowed: megatron, "):
        export_plan(gpt3, gpt3.fixed_plan(), "nemo")
    assert set(TARGETS) == {
        *("megatron", "megatron-bridge", "torchtitan", "torchtitan-0.2", "deepspeed", "accelerate"),
        *("torchrun", "sbatch", "csv"),
    }
