"""What a launch file cannot say stands in it as a comment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parsim.errors import PlanError
from parsim.frameworks.export import export_plan
from parsim.scenario import load_scenario
from tests.commands import GPT3, LLAMA

WORDS: list[tuple[str, str, str, str]] = [
    ("megatron", "nvfp4", "--fp4-format e2m1", ""),
    ("megatron", "mxfp4", "--fp4-recipe mxfp4", ""),
    ("megatron", "fp16_amp", "--fp16", "# precision fp16_amp"),
    ("megatron-bridge", "mxfp8", "", "# precision mxfp8: mixed_precision=bf16_with_mxfp8_mixed"),
    ("megatron-bridge", "fp16", "model.pipeline_dtype=float16", "mixed_precision=fp16_mixed"),
    ("megatron-bridge", "tf32", "model.pipeline_dtype=float32", "# precision tf32: no mixed"),
    ("torchtitan", "tf32", "mixed_precision_param='float32'", "# precision tf32"),
    ("torchtitan", "mxfp8", "mixed_precision_param='bfloat16'", "# precision mxfp8"),
    ("deepspeed", "mxfp8", '"bf16": {', "precision mxfp8: its products or"),
    ("deepspeed", "fp16_amp", '"fp16": {', "precision fp16_amp: its products or"),
    ("accelerate", "mxfp8", "mixed_precision: fp8", "# precision mxfp8: fp8_config"),
    ("accelerate", "fp8_rowwise", "mixed_precision: fp8", "# precision fp8_rowwise: fp8_config"),
    ("accelerate", "bf16_amp", "mixed_precision: bf16", ""),
    ("accelerate", "tf32", "mixed_precision: no", "# precision tf32"),
]


@pytest.mark.parametrize(("target", "precision", "value", "comment"), WORDS)
def test_each_precision_has_its_word_or_a_comment(
    target: str, precision: str, value: str, comment: str
) -> None:
    scenario = load_scenario(GPT3)
    sizes: dict[str, Any] = {"pp": 2, "v": 1, "schedule": "1f1b", "dp_replicate": 64}
    if target == "accelerate":
        sizes |= {"pp": 1, "dp_replicate": 1, "dp_shard": 128, "zero_stage": 3}
    if target == "torchtitan":
        sizes |= {"dp_replicate": 1, "dp_shard": 64, "zero_stage": 1}
    plan = replace(scenario.fixed_plan(), precision=precision, **sizes)
    text = export_plan(scenario, plan, target)
    assert value in text
    assert comment in text


@pytest.mark.parametrize(
    ("scales", "flag"),
    [("delayed", "--fp8-recipe delayed"), ("current", "--fp8-recipe tensorwise")],
)
def test_scales_of_8_bit_are_a_recipe(scales: str, flag: str) -> None:
    scenario = load_scenario(LLAMA, {"software": f"{{name: megatron-lm, fp8_scales: {scales}}}"})
    plan = replace(scenario.fixed_plan(), precision="fp8")
    assert flag in export_plan(scenario, plan, "megatron")
    mixed = f"# precision fp8: mixed_precision=bf16_with_fp8_{scales}_scaling_mixed in the recipe"
    assert mixed in export_plan(scenario, plan, "megatron-bridge")


@pytest.mark.parametrize("target", ["torchtitan", "torchtitan-0.2", "deepspeed", "accelerate"])
def test_what_a_file_cannot_say_is_a_comment(target: str) -> None:
    changes = {
        "model": "{name: gpt-oss-20b, seq_len: 2048, fused_attention: false}",
        "training.optimizer": "sgd",
        "training.clip": "0",
    }
    scenario = load_scenario(LLAMA, {**changes, "plan.dp": "null"})
    text = export_plan(scenario, scenario.fixed_plan(), target)
    for name in (
        "model.fused_attention false",
        "model.window 128 in all layers but one in 2",
        "optimizer sgd",
    ):
        assert name in text
    assert ('"gradient_clipping": 0' if target == "deepspeed" else "training.clip 0") in text


ADAPTERS = "{name: llama3-8b, lora_rank: 16, lora_targets: [linear_qkv, linear_fc2]}"


def test_adapters_are_fields_of_a_recipe_of_megatron_bridge() -> None:
    scenario = load_scenario(LLAMA, {"model": ADAPTERS})
    text = export_plan(scenario, scenario.fixed_plan(), "megatron-bridge")
    assert "peft.dim=16\npeft.target_modules=[linear_qkv,linear_fc2]" in text


@pytest.mark.parametrize("target", ["deepspeed", "accelerate"])
def test_adapters_are_left_to_the_code_that_wraps_the_model(target: str) -> None:
    scenario = load_scenario(LLAMA, {"model": ADAPTERS, "plan.dp": "null"})
    text = export_plan(scenario, scenario.fixed_plan(), target)
    assert "LoraConfig(r=16, target_modules=['q_proj', 'k_proj', 'v_proj', 'down_proj'])" in text


def test_what_is_trained_beside_adapters_goes_to_peft_alone() -> None:
    model = ADAPTERS.replace("}", ", modules_to_save: [embed_tokens, lm_head]}")
    scenario = load_scenario(LLAMA, {"model": model, "plan.dp": "null"})
    text = export_plan(scenario, scenario.fixed_plan(), "deepspeed")
    assert "'down_proj'], modules_to_save=['embed_tokens', 'lm_head'])" in text
    with pytest.raises(PlanError, match="modules_to_save to deepspeed or accelerate"):
        export_plan(scenario, scenario.fixed_plan(), "megatron-bridge")


@pytest.mark.parametrize("target", ["megatron", "torchtitan", "torchtitan-0.2"])
def test_adapters_are_refused_where_a_framework_has_none(target: str) -> None:
    scenario = load_scenario(LLAMA, {"model": ADAPTERS})
    with pytest.raises(
        PlanError, match="has no adapters for lora_rank=16; export to megatron-bridge"
    ):
        export_plan(scenario, scenario.fixed_plan(), target)
