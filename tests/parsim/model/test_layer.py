"""Layers with branches, and models whose ends are layers like others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cost.layer.kept.activations import kept_bytes, whole_bytes
from parsim.cost.step.stages import stage_borders
from parsim.errors import ModelError
from parsim.model.layer import Branches, Layer
from parsim.model.model import Model
from parsim.model.operators import Linear
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer, with_options
from parsim.plan import Plan, PlanTable, Recompute
from parsim.plan.rules.executor.runnable import unbuildable
from tests.parsim.model.branchy import branchy, parts, pointwise, product


@pytest.fixture
def layer() -> Layer:
    return Layer(name="one", parts=parts(64, 256, 512), inputs=64 * 256, outputs=64 * 512)


def test_operators_are_those_of_all_paths_in_order(layer: Layer) -> None:
    names = [getattr(op, "name", "") for op in layer.operators]
    assert names == ["in_norm", "narrow", "relu", "wide", "short", "sum"]


def test_parameters_and_flops_are_sums_over_paths(layer: Layer) -> None:
    weights = 256 * 64 + 64 * 512 + 256 * 512
    assert layer.parameters == weights
    assert layer.forward_flops(3) == 2 * weights * 64 * 3


def test_an_input_of_two_paths_is_kept_once(layer: Layer) -> None:
    table = PlanTable.of([Plan(microbatch_size=2)])
    values = 256 + 256 + 64 + 64  # the norm's input; that of both paths; relu's; wide's
    assert whole_bytes(layer, table)[0] == 2 * 2 * 64 * values
    apart = replace(layer, parts=layer.operators)
    assert whole_bytes(apart, table)[0] == 2 * 2 * 64 * (values + 256)


def test_full_recomputation_keeps_what_enters(layer: Layer) -> None:
    table = PlanTable.of([Plan(microbatch_size=2, recompute=Recompute.FULL)])
    assert kept_bytes(layer, table)[0] == 2 * 2 * 64 * 256


def test_branches_of_branches_and_empty_paths() -> None:
    inner = Branches(paths=((product("a", 4, 8, 8),), (product("b", 4, 8, 8),)))
    outer = Branches(paths=((), (inner,), (pointwise("c", 4, 8), product("d", 4, 8, 8))))
    nested = Layer(name="nested", parts=(outer, pointwise("sum", 4, 8)), inputs=32, outputs=32)
    names = [getattr(op, "name", "") for op in nested.operators]
    assert names == ["a", "b", "c", "d", "sum"]
    assert nested.shared_inputs == {1}
    assert sum(isinstance(op, Linear) for op in nested.operators) == 3


def test_latent_attention_may_see_a_window() -> None:
    spec = with_options(model_spec("deepseek-v2"), window=128, seq_len=4096)
    model = build_transformer(spec)
    assert model.attention is not None
    assert model.attention.window == 128
    assert "window=128" in str(unbuildable(model))


@pytest.mark.parametrize("change", [{"qk_norm": True}, {"rope": False}])
def test_latent_attention_has_norms_and_a_rotation_of_its_own(change: dict[str, bool]) -> None:
    with pytest.raises(ModelError, match="cannot stand beside kv_lora_rank=512"):
        with_options(model_spec("deepseek-v2"), **change)


def test_borders_differ_from_layer_to_layer() -> None:
    model = branchy(copies=1)
    borders = stage_borders(model, (1, 1, 1, 1, 1))
    assert borders == (1024 * 128, 256 * 256, 64 * 512, 16 * 512, 0)


def test_a_model_without_ends_has_blocks_alone() -> None:
    model = branchy()
    assert model.blocks == model.layers
    assert model.ends == ()
    assert (model.lookup, model.attention) == (None, None)
    assert model.border == 4096 * 64


def test_the_ends_of_a_transformer_are_outer_layers() -> None:
    model = build_transformer(model_spec("gpt2"))
    assert [layer.name for layer in model.before] == ["embedding"]
    assert [layer.name for layer in model.behind] == ["head"]
    assert len(model.blocks) == model.num_layers == 12
    assert len(model.layers) == 14


def test_outer_layers_stand_at_the_ends_only() -> None:
    model = build_transformer(model_spec("gpt2"))
    misplaced = (*model.blocks, model.layers[0], *model.blocks)
    with pytest.raises(ModelError, match="only before or behind"):
        Model(name="x", layers=misplaced, tokens=1)
    with pytest.raises(ModelError, match="needs layers that are not outer"):
        Model(name="x", layers=model.ends, tokens=1)
