"""Transformers with frozen weights and LoRA adapters: counts, FLOPs, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from parsim.errors import ModelError
from parsim.model.adapters import TARGETS
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Attention, Linear
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options

ALL_FOUR = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")


def products(layers: tuple[Layer, ...]) -> dict[str, Linear]:
    """Products of layers by name."""
    return {op.name: op for layer in layers for op in layer.operators if isinstance(op, Linear)}


def model(name: str = "llama3-8b", **changes: Any) -> Model:
    return build_transformer(with_options(model_spec(name), **changes))


@pytest.mark.parametrize(
    ("targets", "parameters"),
    [
        # r (inputs + outputs) a layer: h 4,096, q k v 6,144, gate and up 28,672, f 14,336
        (("linear_qkv",), 32 * 16 * (4096 + 6144)),
        (("linear_proj",), 32 * 16 * (4096 + 4096)),
        (ALL_FOUR, 32 * 16 * (4096 + 6144 + 8192 + 4096 + 28672 + 14336 + 4096)),
    ],
)
def test_an_adapter_has_rank_times_both_widths(targets: tuple[str, ...], parameters: int) -> None:
    whole, adapted = model(), model(lora_rank=16, lora_targets=targets)
    assert adapted.updated.parameters == parameters
    assert adapted.parameters == whole.parameters + parameters


def test_without_targets_every_product_of_a_block_has_an_adapter() -> None:
    assert model(lora_rank=8).updated.parameters == (
        model(lora_rank=8, lora_targets=ALL_FOUR).updated.parameters
    )
    latent = model("deepseek-v3", lora_rank=8, predicted_tokens=0)
    names = products(latent.updated.blocks)
    assert {f"{name}_lora_a" for name in ("q_down", "q_up", "kv_down", "kv_up")} <= names.keys()
    assert not any(layer.experts for layer in latent.updated.blocks)  # routed experts are frozen


def test_a_model_that_is_trained_whole_is_its_own_updated_part() -> None:
    whole = model()
    assert whole.trained is None
    assert whole.updated is whole


def test_frozen_products_count_forward_and_one_backward() -> None:
    whole, adapted = model(), model(lora_rank=16, lora_targets=("linear_qkv",))
    operators = [op for block in whole.blocks for op in block.operators]
    core = sum(op.flops(1) for op in operators if isinstance(op, Attention))
    adapters = 32 * 2 * 8192 * 16 * (4096 + 6144)
    frozen = whole.forward_flops(1) - core
    assert adapted.step_flops(1) == 2 * frozen + 3 * (core + adapters)
    assert whole.step_flops(1) == 3 * whole.forward_flops(1)


def test_nothing_of_embedding_and_head_is_trained_and_nothing_is_tied() -> None:
    adapted = model("gpt2", lora_rank=4)
    assert adapted.tied_embeddings
    assert not adapted.updated.tied_embeddings
    assert not any(layer.operators for layer in adapted.updated.ends)


SAVED = ("embed_tokens", "lm_head")


@pytest.mark.parametrize(("saved", "matrices"), [(SAVED[:1], 1), (SAVED[1:], 1), (SAVED, 2)])
def test_saved_modules_are_trained_whole(saved: tuple[str, ...], matrices: int) -> None:
    few, more = (model(lora_rank=16, modules_to_save=names) for names in ((), saved))
    matrix = 128_256 * 4096
    assert more.parameters == few.parameters
    assert more.updated.parameters == few.updated.parameters + matrices * matrix
    assert more.updated.parameter_tensors == few.updated.parameter_tensors + matrices
    # the head's product has its second one backward; looking rows up is no product
    products = 2 * 8192 * matrix * ("lm_head" in saved)
    assert more.step_flops(1) == few.step_flops(1) + products


def test_a_tied_table_is_trained_once_and_its_positions_are_not() -> None:
    few, more = (model("gpt2", lora_rank=4, modules_to_save=names) for names in ((), SAVED))
    assert more.updated.tied_embeddings
    assert more.updated.parameters == few.updated.parameters + 50_257 * 768


def test_an_adapter_keeps_what_its_frozen_product_would() -> None:
    (layer,) = model(lora_rank=16, lora_targets=("linear_qkv",)).kinds
    by_name = products((layer,))
    assert not by_name["qkv"].trained
    assert by_name["qkv_lora_a"].keeps_input
    position = layer.operators.index(by_name["qkv_lora_a"])
    assert position not in layer.shared_inputs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_rank": -1}, "lora_rank=-1 must be at least 0"),
        ({"lora_targets": ("linear_qkv",)}, "lora_targets needs lora_rank"),
        ({"lora_rank": 5000}, "lora_rank=5000 is above hidden_size=4096"),
        ({"lora_rank": 8, "lora_targets": ("linear_qvk",)}, "did you mean 'linear_qkv'"),
        ({"lora_rank": 8, "lora_targets": ("linear_kv_up_proj",)}, "no layer has that product"),
        ({"modules_to_save": SAVED}, "modules_to_save needs lora_rank"),
        ({"lora_rank": 8, "modules_to_save": ("lm_haed",)}, "did you mean 'lm_head'"),
        ({"lora_rank": 8, "modules_to_save": SAVED, "head": "none"}, "has no matrix of logits"),
        (
            {"lora_rank": 8, "modules_to_save": SAVED[:1], "tied_embeddings": True},
            "one matrix; name both embed_tokens and lm_head",
        ),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        model(**changes)


def test_targets_are_products_of_some_model_of_the_catalog() -> None:
    names = {
        product
        for name in ("llama3-8b", "deepseek-v3", "nemotron-3-nano")
        for product in products(model(name).kinds)
    }
    assert set(TARGETS.values()) <= names
