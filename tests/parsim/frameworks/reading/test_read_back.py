"""Launch files read back as export wrote them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parsim.cost.software import changed_switches, with_switches
from parsim.frameworks.export import export_plan
from parsim.frameworks.reading import read_config
from parsim.frameworks.reading.arguments import arguments_of
from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan, Recompute
from parsim.scenario import load_scenario
from tests.commands import GPT3, ROOT
from tests.parsim.frameworks.reading.read_back import SCRIPT, read

MIXTURE = ROOT / "scenarios" / "qwen3-30b-a3b-dgx-h100.yaml"
DEGREES = ("tp", "pp", "cp", "ep", "dp", "microbatch_size", "num_microbatches", "v", "zero_stage")

KEPT = (
    *("recompute", "recompute_modules", "recompute_layers"),
    *("offload_layers", "offload_modules"),
    *("gradient_precision", "reduce_precision", "stage_layers"),
)


def the_same(first: Plan, again: Plan) -> None:
    for name in (*DEGREES, "schedule", "sequence_parallel", *KEPT):
        assert getattr(again, name) == getattr(first, name), name


def test_experts_that_megatron_would_feed_otherwise(tmp_path: Path) -> None:
    """Its defaults are to gather all tokens, and a kernel for each expert."""
    scenario = load_scenario(MIXTURE)
    text = export_plan(scenario, scenario.fixed_plan(), "megatron")
    file, dispatcher = tmp_path / "train.sh", "--moe-token-dispatcher-type alltoall"
    for changed, words in (
        (text.replace(dispatcher, ""), "not given, so allgather: tokens are taken to move by"),
        (text.replace(dispatcher, dispatcher.replace("alltoall", "allgather")), "is allgather: "),
        (text.replace("--moe-grouped-gemm", ""), "no --moe-grouped-gemm: all experts of a rank"),
    ):
        file.write_text(changed, encoding="utf-8")
        assert words in "\n".join(read_config(file, "dgx-h100", 2)[1])


def test_of_a_flag_that_is_repeated_the_last_counts() -> None:
    given = arguments_of("--x 1 --y 2 --x 3 4 --z=5 --z=6")
    assert given == {"--x": ["3", "4"], "--y": ["2"], "--z": ["6"]}


def test_recomputation_of_several_layers_at_once_is_noted(tmp_path: Path) -> None:
    scenario = load_scenario(GPT3)
    plan = replace(scenario.fixed_plan(), recompute=Recompute.FULL)
    text = export_plan(scenario, plan, "megatron")
    file = tmp_path / "train.sh"
    for layers, noted in ((1, False), (4, True)):
        file.write_text(
            text.replace("--recompute-num-layers 1", f"--recompute-num-layers {layers}"),
            encoding="utf-8",
        )
        notes = "\n".join(read_config(file, "dgx-a100", None)[1])
        assert ("--recompute-num-layers 4 with --recompute-method uniform" in notes) == noted


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"zero_stage": 1, "dp_replicate": 1, "dp_shard": 16},
        {"recompute": Recompute.FULL, "schedule": "1f1b", "v": 1},
        {"recompute": Recompute.NONE, "recompute_modules": ("layernorm",)},
        {"recompute": Recompute.NONE, "recompute_layers": 2},
        {"offload_layers": 4, "offload_modules": ("core_attn", "attn_proj")},
        {"schedule": "1f1b", "v": 1, "stage_layers": (11, 13, 12, 12, 12, 12, 12, 12)},
        {"gradient_precision": "same", "reduce_precision": "same"},
        {"gradient_precision": "fp32", "reduce_precision": "fp32"},
        {"precision": "fp16", "gradient_precision": "same", "reduce_precision": "same"},
        {
            "pp": 1,
            "v": 1,
            "schedule": "1f1b",
            "num_microbatches": 12,
            "zero_stage": 3,
            "dp_replicate": 1,
            "dp_shard": 128,
            "reduce_precision": "same",
        },
    ],
)
def test_what_megatron_is_told_is_read_back(tmp_path: Path, changes: dict[str, object]) -> None:
    scenario = load_scenario(GPT3)
    alike = {"reduce_precision": "fp32", **changes}  # as gradients are summed
    plan = replace(scenario.fixed_plan(), **alike)  # type: ignore[arg-type]
    again = read(tmp_path, export_plan(scenario, plan, "megatron"), nodes=128)
    assert again.plan is not None
    the_same(plan, again.plan)
    assert again.spec.num_layers == 96
    assert again.job.model.parameters == pytest.approx(scenario.job.model.parameters, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "tp", "flag"),
    [
        ({"vocab_size": 50257, "padded_vocab_size": 51200}, 8, None),
        ({"vocab_size": 50257, "padded_vocab_size": 50304}, 1, None),
        ({"vocab_size": 50257, "padded_vocab_size": 50304}, 8, "16"),
        ({"vocab_size": 50257, "padded_vocab_size": 50304 * 2}, 8, "12576"),
        ({"vocab_size": 128256, "padded_vocab_size": None}, 8, "32"),
    ],
)
def test_rows_of_the_vocabulary_come_back(
    tmp_path: Path, sizes: dict[str, Any], tp: int, flag: str | None
) -> None:
    scenario = load_scenario(GPT3)
    assert isinstance(scenario.model, TransformerSpec)
    padded = replace(scenario, model=replace(scenario.model, **sizes))
    text = export_plan(
        padded, replace(scenario.fixed_plan(), tp=tp, sequence_parallel=tp > 1), "megatron"
    )
    told = arguments_of(text).get("--make-vocab-size-divisible-by", [None])
    assert told == [flag]
    again = read(tmp_path, text, nodes=16 * tp).spec
    assert again.vocab_size == sizes["vocab_size"]
    assert again.vocab_rows == (sizes["padded_vocab_size"] or again.vocab_size)


def test_rows_that_megatron_would_store_otherwise() -> None:
    scenario = load_scenario(GPT3)
    assert isinstance(scenario.model, TransformerSpec)
    odd = replace(scenario, model=replace(scenario.model, vocab_size=50257, padded_vocab_size=None))
    text = export_plan(odd, scenario.fixed_plan(), "megatron")
    assert "--make-vocab-size-divisible-by" not in text
    assert "# 51200: to predict those, --set model.padded_vocab_size=51200" in text


def test_what_hides_beside_compute_is_read_back(tmp_path: Path) -> None:
    scenario = load_scenario(MIXTURE)
    switched = with_switches(
        scenario.job.software, {"expert_overlap": 1.0, "expert_dispatcher": "hybridep"}
    )
    scenario = replace(scenario, job=replace(scenario.job, software=switched))
    text = export_plan(scenario, replace(scenario.fixed_plan(), precision="bf16"), "megatron")
    assert "--overlap-moe-expert-parallel-comm" in text
    again = read(tmp_path, text, nodes=2).job.software
    assert (again.id, again.expert_dispatcher) == ("megatron-lm", "hybridep")
    assert changed_switches(again)["expert_overlap"] == 1.0


def test_gemms_wait_for_their_collectives_where_no_flag_overlaps_them(tmp_path: Path) -> None:
    assert not read(tmp_path, SCRIPT).job.software.tp_overlap
    overlapped = SCRIPT.replace("pretrain_gpt.py", "pretrain_gpt.py --tp-comm-overlap")
    assert read(tmp_path, overlapped).job.software.tp_overlap
    assert "--tp-comm-overlap" not in str(read_config(tmp_path / "train.sh", "dgx-h100", None)[1])
