"""The torch module against the Model record: counts, cuts, first values, tied tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.errors import ModelError, PlanError
from parsim.model.reader import load_model_catalog, model_spec
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan.rules.executor.runnable import unbuildable

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from executor.model.first_values import OUTPUT_TABLE, TOKEN_TABLE, first_values  # noqa: E402
from executor.model.loss import cross_entropy  # noqa: E402
from executor.model.module import build_model, build_stage  # noqa: E402
from tests.executor.tiny import (  # noqa: E402
    FAMILIES,
    META,
    cut,
    draw,
    each_family,
    each_trained,
    gradients,
    tiny,
)


def forward_flops(spec: TransformerSpec, rows: int) -> int:
    # on the meta device attention is two plain products, which the counter knows
    tokens = torch.zeros(rows, spec.seq_len, dtype=torch.long, device=META)
    with FlopCounterMode(display=False) as counter:
        build_model(spec, device=META)(tokens)
    return int(counter.get_total_flops())


BUILT = [
    name for name in load_model_catalog() if not unbuildable(build_transformer(model_spec(name)))
]


def test_most_catalog_models_are_built() -> None:
    left = set(load_model_catalog()) - set(BUILT)
    assert left == {"nemotron-3-nano"}


def num_parameters(module: nn.Module) -> int:
    """Parameters that gradients train; the bias of a choice is none."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", BUILT)
def test_parameters_of_every_catalog_model_are_the_records(name: str) -> None:
    spec = model_spec(name)
    assert num_parameters(build_model(spec, device=META)) == build_transformer(spec).parameters


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"window": 8, "seq_len": 16, "dropout": True},
            "window=8: windowed attention with dropout",
        ),
        (
            {
                "kv_lora_rank": 8,
                "rope_head_dim": 8,
                "num_key_value_heads": 32,
                "dropout": True,
            },
            "kv_lora_rank: latent attention with dropout",
        ),
        ({"layer_pattern": "*-" * 16}, "layer_pattern: layers of one part (attention_block)"),
    ],
)
def test_parts_that_only_the_simulator_has_are_refused(
    changes: dict[str, object], part: str
) -> None:
    spec = replace(model_spec("llama3-8b"), **changes)  # type: ignore[arg-type]
    with pytest.raises(ModelError) as caught:
        build_model(spec, device=META)
    assert str(caught.value) == f"{part} can be simulated but not run yet; use a model without it"


@each_family
def test_parameters_of_small_models_are_the_records(spec: TransformerSpec) -> None:
    assert num_parameters(build_model(spec)) == build_transformer(spec).parameters


@pytest.mark.parametrize(
    "name", ["gpt2", "llama3-8b", "bert-base", pytest.param("qwen2-7b", marks=pytest.mark.slow)]
)
def test_forward_flops_of_full_size_models_are_the_records(name: str) -> None:
    spec = model_spec(name)
    assert forward_flops(spec, 2) == build_transformer(spec).forward_flops(2)


@pytest.mark.parametrize("fused", [True, False])
@each_family
def test_forward_flops_are_the_records(spec: TransformerSpec, fused: bool) -> None:
    spec = replace(spec, fused_attention=fused)
    assert forward_flops(spec, 3) == build_transformer(spec).forward_flops(3)


def test_parameters_of_a_layer_are_the_records() -> None:
    spec = tiny("qwen2-7b")
    block = build_model(spec).layers["1"]
    record = build_transformer(spec).blocks[0]
    assert sum(p.numel() for p in block.parameters()) == record.parameters


@pytest.mark.parametrize("sizes", [(2, 2), (1, 0, 3), (1, 1, 1, 1)])
@each_family
def test_a_cut_model_has_the_same_weights_and_output(
    spec: TransformerSpec, sizes: tuple[int, ...]
) -> None:
    whole, stages = build_model(spec, seed=5), cut(spec, *sizes, seed=5)
    expected = whole.state_dict()
    result = {name: value for stage in stages for name, value in stage.state_dict().items()}
    assert result.keys() == expected.keys()
    assert all(torch.equal(result[name], expected[name]) for name in expected)
    tokens, _ = draw(spec)
    x = tokens
    for stage in stages:
        x = stage(x)
    assert torch.equal(x, whole(tokens))


def test_weights_depend_on_name_and_seed_alone() -> None:
    shape = (8, 8)
    a = first_values("layers.3.mlp.fc1.weight", shape, 1)
    assert torch.equal(a, first_values("layers.3.mlp.fc1.weight", shape, 1))
    assert not torch.equal(a, first_values("layers.3.mlp.fc1.weight", shape, 2))
    assert not torch.equal(a, first_values("layers.2.mlp.fc1.weight", shape, 1))


def test_building_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    build_model(tiny("gpt2"))
    assert torch.equal(before, torch.get_rng_state())


def test_norms_start_at_one_biases_at_zero_matrices_small() -> None:
    parameters = dict(build_model(tiny("gpt2", hidden_size=240)).named_parameters())
    assert (parameters["head.norm.weight"] == 1).all()
    assert (parameters["layers.0.mlp.fc1.bias"] == 0).all()
    assert parameters["layers.0.mlp.fc1.weight"].std().item() == pytest.approx(0.02, rel=0.05)


def test_low_precision_weights_are_the_rounded_fp32_ones() -> None:
    spec = tiny("llama3-8b")
    low = build_model(spec, dtype=torch.bfloat16).state_dict()
    full = build_model(spec).state_dict()
    assert all(torch.equal(low[name], full[name].bfloat16()) for name in full)


def test_layers_that_are_not_there_are_refused() -> None:
    with pytest.raises(PlanError, match=r"layers 3\.\.5 is not in gpt2, whose layers are 0\.\.3"):
        build_stage(tiny("gpt2"), first_layer=3, num_layers=3, embedding=False, head=True)


def test_a_tied_table_on_one_stage_is_one_parameter() -> None:
    stage = build_model(tiny("gpt2"))
    assert stage.get_parameter(OUTPUT_TABLE) is stage.get_parameter(TOKEN_TABLE)
    assert OUTPUT_TABLE not in dict(stage.named_parameters())
    assert stage.tied_parameters() == ()


def test_the_ends_of_a_cut_model_hold_equal_copies() -> None:
    first, middle, last = cut(tiny("gpt2"), 1, 2, 1)
    (table,), (copy,) = first.tied_parameters(), last.tied_parameters()
    assert table is first.get_parameter(TOKEN_TABLE)
    assert copy is last.get_parameter(OUTPUT_TABLE)
    assert torch.equal(table, copy)
    assert middle.tied_parameters() == ()


def test_a_frozen_table_has_no_gradient_that_two_stages_would_sum() -> None:
    first, last = cut(replace(tiny("gpt2"), lora_rank=2), 2, 2)
    assert first.tied_parameters() == last.tied_parameters() == ()


@pytest.mark.parametrize("name", ["llama2", "bert-no-head"])
def test_nothing_is_tied_without_tied_embeddings_or_head(name: str) -> None:
    first, last = cut(FAMILIES[name], 2, 2)
    assert first.tied_parameters() == last.tied_parameters() == ()


def test_replaced_parameters_are_tied_again() -> None:
    stage = build_model(tiny("gpt2"))
    stage.to_empty(device="cpu")
    stage.tie()
    assert stage.get_parameter(OUTPUT_TABLE) is stage.get_parameter(TOKEN_TABLE)


@each_trained
def test_gradients_of_two_stages_sum_to_those_of_one_model(spec: TransformerSpec) -> None:
    tokens, targets = draw(spec)
    expected = gradients(build_model(spec), tokens, targets)
    first, last = cut(spec, 3, 1)
    cross_entropy(last(first(tokens)), targets).backward()
    result = {n: p.grad for stage in (first, last) for n, p in stage.named_parameters()}
    if first.tied_parameters():
        result[TOKEN_TABLE] = result[TOKEN_TABLE] + result.pop(OUTPUT_TABLE)
    assert result.keys() == expected.keys()
    assert all(torch.allclose(result[n], expected[n], rtol=0, atol=1e-7) for n in expected)


@each_trained
def test_every_parameter_gets_a_gradient(spec: TransformerSpec) -> None:
    result = gradients(build_model(spec), *draw(spec))
    still = {name for name, gradient in result.items() if not gradient.any()}
    # the pooler has no objective of its own; a constant added to all keys changes no softmax
    assert still <= {name for name in result if "pooler" in name or name.endswith(".k.bias")}


@pytest.mark.parametrize("name", ["gpt2", "mixtral-8x7b"])
def test_values_that_several_threads_draw_are_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = build_model(tiny(name))
    monkeypatch.setattr("executor.model.first_values.drawing_threads", lambda _: 4)
    together = build_model(tiny(name))
    for values, other in zip(alone.parameters(), together.parameters(), strict=True):
        assert torch.equal(values, other)
