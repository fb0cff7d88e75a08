"""Mixtures of experts and latent attention: layers, parameters, FLOPs, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import ModelError
from parsim.model.operators import Attention, Elementwise
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec, build_transformer, with_options

MIXTRAL, DEEPSEEK = model_spec("mixtral-8x7b"), model_spec("deepseek-v3")

# billions in all and for one token, as published; GPT-OSS counts the latter without its embedding
PUBLISHED = {
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (141, 39.1),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235, 22),
    "deepseek-v2": (236, 21),
    "deepseek-v3": (671, 37),
    "kimi-k2": (1026, 32.6),
    "gpt-oss-20b": (20.9, 3.6),
    "gpt-oss-120b": (116.8, 5.1),
    "nemotron-3-nano": (31.6, 3.6),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_counts_in_all_and_for_one_token(name: str) -> None:
    model = build_transformer(model_spec(name))
    total, active = PUBLISHED[name]
    unused = model.layers[0].parameters if name.startswith("gpt-oss") else 0
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.005)
    assert (model.active_parameters - unused) / 1e9 == pytest.approx(active, rel=0.025)


def test_flops_are_those_of_the_parameters_that_a_token_meets() -> None:
    """6 FLOPs a weight and token for a step, plus attention's; norms and embedding do none."""
    model = build_transformer(MIXTRAL)
    layers, h, s = MIXTRAL.num_layers, MIXTRAL.hidden_size, MIXTRAL.seq_len
    weights = model.active_parameters - model.layers[0].parameters - (2 * layers + 1) * h
    attention = 12 * layers * h * s * s
    assert model.step_flops(1) == 6 * weights * s + attention


def test_deepseek_has_plain_layers_first_and_shared_experts_in_the_others() -> None:
    layers = build_transformer(DEEPSEEK).blocks
    assert [layer.experts is None for layer in layers[:4]] == [True, True, True, False]
    assert [layer.name for layer in layers[2:4]] == ["block", "expert_block"]
    shared = 3 * DEEPSEEK.hidden_size * DEEPSEEK.shared_expert_ffn_hidden_size
    without = build_transformer(replace(DEEPSEEK, shared_expert_ffn_hidden_size=0))
    assert build_transformer(DEEPSEEK).parameters - without.parameters == 58 * shared


def test_every_second_layer_has_experts_where_the_spec_says_so() -> None:
    spec = with_options(MIXTRAL, num_layers=5, expert_every=2)
    assert [layer.experts is None for layer in build_transformer(spec).blocks] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_windows_alternate_and_cost_less() -> None:
    model = build_transformer(model_spec("gpt-oss-120b"))
    windows = [
        op.window
        for layer in model.blocks[:4]
        for op in layer.operators
        if isinstance(op, Attention)
    ]
    assert windows == [128, None, 128, None]
    near = Attention(
        tokens=4096,
        heads=1,
        kv_heads=1,
        head_dim=64,
        causal=True,
        fused=True,
        dropout=False,
        window=128,
    )
    assert near.seen == 256 / 4096
    short = replace(near, tokens=256)
    assert short.seen == replace(short, window=None).seen == 0.5


def test_latent_attention_counts_both_widths_of_its_heads() -> None:
    core = build_transformer(DEEPSEEK).attention
    assert core is not None
    assert (core.head_dim, core.output_dim, core.mean_dim) == (192, 128, 160)
    assert replace(core, tokens=100).flops(1) == 2 * 100**2 * 128 * (192 + 128)


def test_a_hybrid_has_layers_of_one_part() -> None:
    layers = build_transformer(model_spec("nemotron-3-nano")).blocks
    names = [layer.name for layer in layers]
    counts = {name: names.count(name) for name in set(names)}
    assert counts == {"mamba_block": 23, "expert_block": 23, "attention_block": 6}
    assert names[:6] == ["mamba_block", "expert_block"] * 2 + ["mamba_block", "attention_block"]
    assert len(set(map(id, layers))) == 3


@given(st.integers(1, 64), st.integers(1, 8), st.integers(1, 4))
def test_an_expert_more_adds_its_parameters_and_no_flops(count: int, top: int, more: int) -> None:
    small = replace(MIXTRAL, num_layers=2, num_experts=max(count, top), experts_per_token=top)
    large = replace(small, num_experts=small.num_experts + more)
    router = 2 * more * small.hidden_size
    first, second = build_transformer(small), build_transformer(large)
    expert = 3 * small.hidden_size * small.expert_ffn_hidden_size
    assert second.parameters - first.parameters == 2 * more * expert + router
    assert second.active_parameters - first.active_parameters == router
    extra = second.forward_flops(1) - first.forward_flops(1)
    assert extra == 2 * router * small.seq_len


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            replace(MIXTRAL, experts_per_token=9),
            "experts_per_token=9 must be from 1 to num_experts=8",
        ),
        (
            replace(MIXTRAL, expert_ffn_hidden_size=0),
            "expert_ffn_hidden_size=0 must be at least 1 with num_experts=8",
        ),
        (
            replace(MIXTRAL, dense_layers=32),
            "dense_layers=32 and expert_every=1 leave none of 32 layers with experts; use "
            "num_experts=0 for a dense model",
        ),
        (
            replace(MIXTRAL, num_layers=3, layer_pattern="MX"),
            "layer_pattern='MX' must name each of num_layers=3 layers: M (Mamba-2), * (attention), "
            "E (experts) or - (MLP)",
        ),
        (
            replace(MIXTRAL, num_layers=2, layer_pattern="ME"),
            "layer_pattern with M needs mamba_heads, mamba_head_dim and mamba_state",
        ),
        (
            replace(DEEPSEEK, rope_head_dim=192),
            "rope_head_dim=192 must be above 0 and below head_dim=192, of which it is a part",
        ),
        (
            replace(DEEPSEEK, num_key_value_heads=8),
            "num_key_value_heads=8 differs from num_attention_heads=128: latent attention makes "
            "keys and values for each head",
        ),
    ],
)
def test_sizes_that_contradict_each_other(spec: TransformerSpec, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        build_transformer(spec)
    assert str(caught.value) == message


def test_a_further_token_has_a_block_and_two_logits_of_one_table() -> None:
    """DeepSeek-V3 (arXiv:2412.19437): 671 B parameters, 11.5 B of them more in the module."""
    spec = model_spec("deepseek-v3")
    plain, more = (
        build_transformer(with_options(spec, predicted_tokens=count)) for count in (0, 1)
    )
    block, added = plain.blocks[-1], more.blocks[-1]
    joined = 2 * spec.hidden_size**2 + 3 * spec.hidden_size
    assert added.parameters == block.parameters + joined
    assert more.parameters - plain.parameters == added.parameters
    assert added.parameters == pytest.approx(11.5e9, rel=0.02)
    head = plain.layers[-1].forward_flops(1)
    assert added.forward_flops(1) > block.forward_flops(1) + head


def test_a_scaled_rotation_moves_more() -> None:
    plain = model_spec("gpt-oss-20b")
    assert plain.rope_scaling == "yarn"

    def moved(scaling: str) -> float:
        layer = build_transformer(with_options(plain, rope_scaling=scaling)).blocks[0]
        return sum(op.forward for op in layer.operators if isinstance(op, Elementwise))

    assert moved("yarn") == moved("none") + 10.0
