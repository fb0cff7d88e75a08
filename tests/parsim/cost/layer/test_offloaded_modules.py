"""Bytes that layers move to the host's memory, by hand and by module."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.layer.kept.activations import (
    kept_bytes,
    module_of,
    offloaded_bytes,
    offloaded_parts,
)
from parsim.model.layer import Layer
from parsim.model.operators import Attention
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.names import OFFLOAD_MODULES

T, H, F, KV = 1024, 4096, 14336, 1024
"""Tokens, width, width of the MLP, width of keys (and of values) of llama3-8b."""


def layer(model: str = "llama3-8b", position: int = -1) -> Layer:
    spec = replace(model_spec(model), num_layers=4, seq_len=T)
    return build_transformer(spec).blocks[position]


def moved(*modules: str, of: Layer | None = None, **more: object) -> float:
    plan = Plan(offload_layers=1, offload_modules=modules, **more)  # type: ignore[arg-type]
    return float(offloaded_bytes(of or layer(), PlanTable.of([plan]))[0])


def test_bytes_of_each_module_of_a_plain_layer_by_hand() -> None:
    value = 2 * T  # bf16
    assert moved("attn_norm") == value * H
    assert moved("qkv_linear") == value * H
    # queries, keys, values, and a log-sum-exp of 4 bytes a token for each of 32 heads
    assert moved("core_attn") == value * (H + 2 * KV) + 4 * T * 32
    assert moved("attn_proj") == value * H
    assert moved("mlp_norm") == value * H
    # the input, gate and up for the activation, its result for the last product
    assert moved("mlp") == value * (H + 2 * F + F)


def test_a_micro_batch_and_tensor_ranks_scale_what_is_moved() -> None:
    assert moved("mlp", microbatch_size=3) == 3 * moved("mlp")
    assert moved("core_attn", tp=2) == moved("core_attn") / 2


def test_no_module_named_moves_all_that_is_kept() -> None:
    table = PlanTable.of([Plan(offload_layers=1)])
    kept = kept_bytes(layer(), table)
    assert offloaded_bytes(layer(), table) == pytest.approx(kept)
    full = PlanTable.of([Plan(offload_layers=1, recompute=Recompute.FULL)])
    assert offloaded_bytes(layer(), full)[0] == 2 * T * H  # the layer's input alone


def test_modules_of_a_mixture_are_parts_of_its_experts() -> None:
    mixture = layer("mixtral-8x7b")
    experts = mixture.experts
    assert experts is not None
    rows, f = T * experts.top_k, experts.ffn_hidden_size
    assert moved("expert_fc1", of=mixture) == 2 * rows * experts.width
    assert moved("moe_act", of=mixture) == 2 * rows * 2 * f
    assert moved("fused_group_mlp", of=mixture) == 2 * rows * (experts.width + 3 * f)
    assert moved("mlp", of=mixture) == 0.0


def test_what_is_computed_again_is_not_moved() -> None:
    mixture = layer("mixtral-8x7b")
    again = moved("fused_group_mlp", of=mixture, recompute_modules=("moe_act",))
    f, k = mixture.experts.ffn_hidden_size, mixture.experts.top_k  # type: ignore[union-attr]
    assert moved("fused_group_mlp", of=mixture) - again == 2 * T * k * f
    assert moved("expert_fc1", of=mixture, recompute_modules=("moe",)) == 0.0
    scores = 4 * T * 32
    selective = moved("core_attn", recompute=Recompute.SELECTIVE)
    assert moved("core_attn") - selective == scores


def test_all_modules_together_are_within_what_a_layer_keeps() -> None:
    for model in ("llama3-8b", "mixtral-8x7b", "deepseek-v3"):
        block = layer(model)
        table = PlanTable.of([Plan(offload_layers=1)])
        together = sum(moved(name, of=block) for name in OFFLOAD_MODULES[:-1])
        assert 0.5 * kept_bytes(block, table)[0] < together <= kept_bytes(block, table)[0]


def test_parts_are_of_the_kinds_that_a_layer_keeps() -> None:
    table = PlanTable.of([Plan(offload_layers=1, offload_modules=("core_attn", "mlp"))])
    parts = offloaded_parts(layer(), table)
    assert {name for name, size in parts.items() if size[0]} == {
        "attention",
        "attention_scores",
        "mlp",
    }
    assert offloaded_bytes(layer(), table) == pytest.approx(np.sum(list(parts.values()), axis=0))


def test_every_operator_of_a_latent_layer_has_its_module() -> None:
    latent = layer("deepseek-v3")
    names = {getattr(op, "name", type(op)): module_of(latent, op) for op in latent.operators}
    assert names["q_down"] == names["kv_up"] == "qkv_linear"
    assert names["projection"] == "attn_proj"
    assert names[Attention] == "core_attn"
