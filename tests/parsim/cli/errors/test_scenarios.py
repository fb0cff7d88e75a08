"""Scenario files and plans that are wrong: the message, the exit code, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.cluster.reader import load_catalog
from parsim.errors import alternatives
from parsim.scenario.schema.plan import PlanBlock
from tests.commands import LLAMA, SMALL, Cli, settings


def edited(tmp_path: Path, old: str, new: str) -> Path:
    """A copy of the small scenario, `s.yaml`, with one edit."""
    text = Path(SMALL).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "s.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    return tmp_path / "s.yaml"


WRONG = {
    "misspelt key": (
        "microbatch_size: 1",
        "microbatchsize: 1",
        ":24:3 plan.microbatchsize is an unknown key"
        + alternatives("microbatchsize", PlanBlock.model_fields),
    ),
    "wrong unit": (
        "nodes: 1",
        "nodes: 1\n  intra: {latency: 5GB}",
        ":15:11 cluster.intra.latency '5GB' is not a time: allowed units are s, ms, us, ns; "
        "e.g. '5us'",
    ),
    "bare number": (
        "nodes: 1",
        "nodes: 1\n  intra: {latency: 5}",
        ":15:11 cluster.intra.latency bare number 5; write it with a unit, e.g. '5us'",
    ),
    "duplicate key": (
        "  pp: 2 ",
        "  pp: 2\n  pp: 4 ",
        ":24:3 plan.pp is written twice; first on line 23",
    ),
    "unknown device": (
        "system: cpu",
        "system: cpu\n  device: h100-sxm-80g",
        ":14:3 cluster.device unknown device 'h100-sxm-80g'"
        + alternatives("h100-sxm-80g", load_catalog().devices, listing="parsim catalog devices"),
    ),
}


@pytest.mark.parametrize("command", ["check", "simulate", "search", "timeline"])
@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(cli: Cli, tmp_path: Path, command: str, case: str) -> None:
    old, new, message = WRONG[case]
    scenario = edited(tmp_path, old, new)
    output = ["-o", tmp_path / "x.png"] if command == "timeline" else []
    assert cli(command, scenario, *output) == (2, "", f"error: {scenario}{message}\n")
    assert not (tmp_path / "x.png").exists()


def test_a_misspelt_file(cli: Cli, tmp_path: Path) -> None:
    edited(tmp_path, "gpt2", "gpt2")
    done = cli("check", tmp_path / "t.yaml")
    assert done == (2, "", f"error: {tmp_path}/t.yaml: no such file (did you mean 's.yaml'?)\n")


def test_a_folder(cli: Cli, tmp_path: Path) -> None:
    done = cli("check", tmp_path)
    assert done == (
        2,
        "",
        f"error: {tmp_path}: is a folder; give one file\n",
    )


@pytest.mark.parametrize(
    ("scenario", "pairs", "message"),
    [
        (
            LLAMA,
            ["plan.tp=3"],
            "--set plan.tp=3 plan tp=3 does not divide num_attention_heads=32; allowed: 1, 2, 4, "
            "8, 16, 32",
        ),
        (
            LLAMA,
            ["plan.dp=3"],
            "{file}:22:1 plan world size mismatch: pp=1 x dp=3 x cp=1 x tp=1 = 3, but the "
            "cluster has "
            "8 devices; use dp=8 (with --set plan.dp=3)",
        ),
        (
            LLAMA,
            ["training.global_batch_size=15"],
            "--set training.global_batch_size=15 training global_batch_size=15 is not divisible by "
            "microbatch_size=1 x dp=8 = 8; use a multiple of 8, or a microbatch_size x dp that "
            "divides 15",
        ),
        (
            SMALL,
            ["plan.pp=16"],
            "{file}:22:1 plan more stages than layers: pp=16 x v=1 = 16 stages for 12 layers, "
            "embedding, head; use pp x v <= 14 (with --set plan.pp=16)",
        ),
        (
            SMALL,
            ["plan.schedule=1f1c"],
            "--set plan.schedule=1f1c plan schedule='1f1c' is unknown (did you mean '1f1b'?); "
            "nearest of 23: 1f1b, eager_1f1b, interleaved_1f1b, zb_h1, zb_1p (all of them: parsim "
            "catalog schedules)",
        ),
        (
            SMALL,
            ["plan.pp=1", "plan.cp=2", "model.fused_attention=false"],
            "--set plan.cp=2 plan cp=2: context parallelism needs fused attention, whose "
            "blocks can "
            "be merged, but gpt2 has unfused attention; use cp=1 (with --set plan.pp=1, --set "
            "model.fused_attention=false)",
        ),
        (SMALL, ["plan.ep=2"], "--set plan.ep=2 plan ep=2: gpt2 has no experts; use ep=1"),
        (
            SMALL,
            ["plan.zero_stage=5"],
            "--set plan.zero_stage=5 plan zero_stage=5 is unknown; allowed: 0, 1, 2, 3",
        ),
        (SMALL, ["plan.tp=x"], "--set plan.tp=x plan.tp must be a whole number, got 'x'"),
        (
            SMALL,
            ["model.seq_len=128k"],
            "--set model.seq_len=128k model.seq_len must be a whole number, got '128k'; write "
            "131072",
        ),
        (
            SMALL,
            ["jitter.slow_ranks={1:1.2}"],
            "--set jitter.slow_ranks={1:1.2} jitter.slow_ranks.1:1.2 must be a plain number, got "
            "null; a space belongs behind the colon, as in {3: 1.2}",
        ),
        (
            SMALL,
            ["model.lora_rank=8", "model.lora_targets=[q_proj]"],
            "--set model.lora_targets=[q_proj] model lora_targets=q_proj is unknown (did you mean "
            "'linear_qkv'?); allowed: linear_qkv, linear_proj, linear_fc1, linear_fc2, "
            "linear_q_down_proj, linear_q_up_proj, linear_kv_down_proj, linear_kv_up_proj, "
            "in_proj, out_proj (with --set model.lora_rank=8)",
        ),
        (
            SMALL,
            ["cluster.gpus=2"],
            "--set cluster.gpus=2 cluster.gpus is an unknown key (did you mean "
            "'devices_per_node'?); allowed: system, nodes, device, devices_per_node, catalog, "
            "placement, failed, intra, network, groups",
        ),
    ],
)
def test_plans_that_are_not_legal(cli: Cli, scenario: str, pairs: list[str], message: str) -> None:
    done = cli("simulate", scenario, *settings(*pairs))
    assert done == (2, "", f"error: {message.replace('{file}', scenario)}\n")


def test_a_scenario_without_a_plan(cli: Cli, tmp_path: Path) -> None:
    done = cli("simulate", SMALL, *settings("plan=null"))
    assert done == (
        2,
        "",
        f"error: {SMALL}: no plan block; add one, or take the best of `parsim search "
        f"{SMALL} --save best.yaml`\n",
    )


def test_a_repository_of_weights_is_told_apart_from_a_misspelt_name(cli: Cli) -> None:
    done = cli("simulate", SMALL, *settings("model.name=org/model"))
    assert done.code == 2
    assert done.err.endswith("; nothing is downloaded: name a model's config.json\n")
