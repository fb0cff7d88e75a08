"""Recipes: which line a row follows, and what it sets in the case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.validation.step.assumptions import release_number
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.recipes import recipe_of, recipes
from parsim.validation.step.row_reader import parse_row

ROW = {
    "row_id": "1",
    "stack": "megatron-bridge",
    "stack_release": "26.04",
    "system": "dgx-h100",
    "gpu_type": "h100-sxm-80gb",
    "gpus_per_node": "8",
    "n_gpus": "16",
    "model": "Nemotron_3_Nano",
    "seq_len": "8192",
    "precision": "fp8",
    "tp": "1",
    "pp": "1",
    "dp": "16",
    "ep": "8",
    "micro_batch_size": "1",
    "n_micro_batches": "64",
    "global_batch_size": "1024",
    "step_time_s": "36",
}


def run(**cells: str) -> MeasuredRun:
    return parse_row({**ROW, **cells})


def case(**cells: str) -> Case:
    return build_case(run(**cells))


def test_a_row_follows_the_recipe_of_its_model_device_and_precision() -> None:
    built = recipe_of(run())
    assert built is not None
    assert built.recompute == ("core_attn", "layernorm", "moe", "moe_act")
    assert (built.dispatcher, built.overlap, built.graphs) == ("hybridep", False, ("mamba",))


LARGE = {
    "stack_release": "26.04.01",
    "n_gpus": "256",
    "dp": "256",
    "precision": "mxfp8",
    "n_micro_batches": "32",
    "global_batch_size": "8192",
}


V3 = {"model": "DeepSeekV3", "n_micro_batches": "16", "global_batch_size": "4096"}
QWEN = {"model": "Qwen3_235B_a22B"}


@pytest.mark.parametrize(
    ("cells", "dispatcher", "overlap"),
    [
        ({**V3, "gpu_type": "b200-sxm"}, "deepep", True),
        ({**QWEN, "gpu_type": "b300-sxm"}, "hybridep", False),
        ({**QWEN, "gpu_type": "b300-sxm", "stack_release": "26.04"}, "alltoall", False),
        ({**QWEN, "precision": "fp8", "stack_release": "26.02.01"}, "alltoall", True),
    ],
)
def test_large_mixtures_follow_the_tag_of_their_release(
    cells: dict[str, str], dispatcher: str, overlap: bool
) -> None:
    """26.04.01 is Megatron-Bridge 0.4.2; scripts choose the dispatcher after the model's recipe."""
    built = recipe_of(run(**{**LARGE, **cells}))
    assert built is not None
    assert (built.dispatcher, built.overlap) == (dispatcher, overlap)


@pytest.mark.parametrize(
    "cells",
    [
        {"stack_release": ""},
        {"stack_release": "26.02"},
        {"stack": "megatron-lm"},
        {"precision": "nvfp4"},
    ],
)
def test_no_recipe_without_a_release_that_has_one(cells: dict[str, str]) -> None:
    assert recipe_of(run(**cells)) is None


def test_the_newest_recipe_that_is_not_newer_than_the_row() -> None:
    gpt = {
        "model": "GPT OSS 120B",
        "gpu_type": "gb200",
        "system": "gb200-nvl72",
        "n_gpus": "64",
        "gpus_per_node": "4",
        "dp": "64",
        "ep": "64",
        "precision": "bf16",
        "global_batch_size": "1280",
        "n_micro_batches": "20",
        "seq_len": "4096",
    }
    old, new = (recipe_of(run(**gpt, stack_release=name)) for name in ("26.02.01", "26.08"))
    assert old is not None
    assert new is not None
    assert (old.overlap, new.overlap) == (False, True)
    assert old.since < new.since


def test_a_recipe_fills_in_what_a_row_leaves_blank() -> None:
    built = case()
    assert built.plan.recompute_modules == ("core_attn", "layernorm", "moe", "moe_act")
    assert built.job.software.expert_dispatcher == "hybridep"
    assert built.job.software.graphs == ("mamba",)


def test_what_a_row_says_stands() -> None:
    assert case(recompute="none").plan.recompute_modules == ()


def test_dense_rows_follow_no_recipe() -> None:
    dense = {
        "model": "LLAMA3_8B",
        "n_layers": "32",
        "hidden_size": "4096",
        "n_heads": "32",
        "ffn_hidden_size": "14336",
        "ep": "1",
        "dp": "16",
    }
    built = case(**dense)
    assert built.plan.recompute_modules == ()
    assert built.job.software.graphs == ()


def test_dropped_tokens_need_no_counts() -> None:
    plain, dropped = case(), case(note="tokendrop; force-balanced")
    assert dropped.job.software.expert_launch == plain.job.software.padded_launch
    assert replace(dropped.job.software, expert_launch=plain.job.software.expert_launch) == (
        plain.job.software
    )


def test_lines_are_sorted_by_release_within_a_recipe() -> None:
    """Each (model, device, precision, batch) has every release once."""
    lines = recipes("megatron-bridge")
    keys = [(r.model, r.device, r.precision, r.n_gpus, r.global_batch_size, r.since) for r in lines]
    assert len(keys) == len(set(keys)) > 100


def test_releases_compare_as_numbers() -> None:
    assert release_number("26.06.01") > release_number("26.06") > release_number("25.11")


DEEPSEEK = {
    "model": "DeepSeek V3",
    "gpu_type": "gb200",
    "system": "gb200-nvl72",
    "n_gpus": "256",
    "gpus_per_node": "4",
    "pp": "4",
    "vpp": "4",
    "dp": "64",
    "ep": "64",
    "seq_len": "4096",
    "precision": "mxfp8",
    "n_micro_batches": "32",
    "global_batch_size": "2048",
}


def test_a_recipe_predicts_a_further_token_and_leaves_the_last_stage_short() -> None:
    built = case(**DEEPSEEK)
    assert built.job.model.num_layers == 62
    assert built.plan.stage_layers == (*[4] * 15, 2)
    assert built.job.model.blocks[-1].name == "prediction_block"


def test_logits_are_in_8_bit_from_26_06_on() -> None:
    """fp8_output_proj of Megatron-Bridge 0.5.0 for MXFP8 on GB200 and GB300."""
    old, new = (case(**DEEPSEEK, stack_release=name) for name in ("26.04.01", "26.06"))
    told = [built.job.software.quantized_logits for built in (old, new)]
    assert told == [False, True]


def test_attention_is_in_8_bit_where_a_recipe_asks_for_it() -> None:
    """fp8_dot_product_attention of DeepSeek-V3 in Megatron-Bridge 0.5.0: of GB300, not of GB200."""
    blackwell_ultra = {"gpu_type": "gb300", "system": "gb300-nvl72"}
    built = (
        case(**DEEPSEEK, stack_release="26.06"),
        case(**{**DEEPSEEK, **blackwell_ultra}, stack_release="26.04.01"),
        case(**{**DEEPSEEK, **blackwell_ultra}, stack_release="26.06"),
    )
    assert [run.job.software.quantized_attention for run in built] == [False, False, True]


def test_mlperf_runs_deepseek_s_logits_in_8_bit_on_gb300() -> None:
    """Its files of round 6.0: FP8_DPA on both systems, FP8_OUTPUT_PROJ on GB300 alone."""
    lines = [line for line in recipes("megatron-bridge") if line.global_batch_size >= 15360]
    of_mlperf = [line for line in lines if line.precision == "mxfp8" and line.since == (26, 4)]
    assert len(of_mlperf) == 9
    for line in of_mlperf:
        assert line.quantized_attention
        assert line.quantized_logits == (line.device == "gb300")


def test_a_trimmed_model_has_no_further_token() -> None:
    trimmed = case(**DEEPSEEK, n_layers="16")
    assert trimmed.job.model.num_layers == 16


@pytest.mark.parametrize(
    ("stages", "cut"),
    [
        (4, (16, 16, 16, 14)),
        (8, (*[8] * 7, 6)),
        (32, (1, *[2] * 30, 1)),
        (1, None),
    ],
)
def test_stages_of_published_layouts(stages: int, cut: tuple[int, ...] | None) -> None:
    """Megatron-Bridge, set_deepseek_v3_pipeline_model_parallel_layout; the token is a layer."""
    built = recipe_of(run(**DEEPSEEK))
    assert built is not None
    assert built.stage_layers(62, stages) == cut


def test_a_job_of_a_power_of_two_takes_64_of_a_rack() -> None:
    built = case(**DEEPSEEK)
    assert (built.job.cluster.num_nodes, built.job.system.devices_per_node) == (4, 64)
    assert built.job.system.network is not None
    assert built.job.system.network.nics_per_node == 64
