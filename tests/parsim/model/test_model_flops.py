"""Model FLOPs of a step against the formulas of the Megatron papers.

Narayanan et al. 2021 (arXiv:2104.04473), section 5.1, counts what the hardware does when every
layer is computed a second time for backward:

    F_hw = 96 B s l h^2 (1 + s/(6h) + V/(16 l h))

Its first two terms are four passes (forward, again, and backward worth two) of the layers,
24 B s l h^2 (1 + s/(6h)) each. Its last is 6 B s h V: three passes of the logits, 2 B s h V
each, which are not computed again. One pass of the layers less is Korthikanti et al. 2022
(arXiv:2205.05198), appendix A, the model FLOPs that `step_flops` counts:

    F = 72 B s l h^2 (1 + s/(6h) + V/(12 l h))
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.model.reader import load_model_catalog, model_spec
from parsim.model.transformer import TransformerSpec, build_transformer

MEGATRON = [
    name
    for name, spec in load_model_catalog().items()
    if name.startswith(("gpt-", "gpt3", "megatron-")) and not (spec.num_experts or spec.rope)
]
TOLERANCE = 0.005


def hardware_flops(spec: TransformerSpec, batch: int) -> float:
    """Formula F_hw of the module."""
    s, layers, h, v = spec.seq_len, spec.num_layers, spec.hidden_size, spec.vocab_rows
    return 96 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (16 * layers * h))


def model_flops(spec: TransformerSpec, batch: int) -> float:
    """Formula F of the module."""
    s, layers, h, v = spec.seq_len, spec.num_layers, spec.hidden_size, spec.vocab_rows
    return 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + v / (12 * layers * h))


def layers_once(spec: TransformerSpec, batch: int) -> int:
    model = build_transformer(spec)
    return sum(layer.forward_flops(batch) for layer in model.blocks)


def test_all_megatron_models_are_compared() -> None:
    """Fourteen of the papers, and two of NeMo's."""
    assert len(MEGATRON) == 16


@pytest.mark.parametrize("name", MEGATRON)
def test_step_flops_equal_the_2022_formula(name: str) -> None:
    spec = model_spec(name)
    flops = build_transformer(spec).step_flops(512)
    assert flops == pytest.approx(model_flops(spec, 512), rel=TOLERANCE)


@pytest.mark.parametrize("name", MEGATRON)
def test_step_flops_with_recomputation_equal_the_2021_formula(name: str) -> None:
    spec = model_spec(name)
    flops = build_transformer(spec).step_flops(512) + layers_once(spec, 512)
    assert flops == pytest.approx(hardware_flops(spec, 512), rel=TOLERANCE)


@pytest.mark.parametrize("name", MEGATRON)
def test_both_formulas_are_met_to_rounding(name: str) -> None:
    """Nothing but matrix products is counted on either side, so the counts are the same."""
    spec = model_spec(name)
    flops = build_transformer(spec).step_flops(1)
    assert flops == pytest.approx(model_flops(spec, 1), rel=1e-12)
    assert flops + layers_once(spec, 1) == pytest.approx(hardware_flops(spec, 1), rel=1e-12)


def test_utilisation_of_the_530b_run_is_the_published_one() -> None:
    """Korthikanti et al. 2022: 39.15 s for 2,240 sequences on 2,240 A100s (312 TFLOP/s), 54.2 %."""
    flops = build_transformer(model_spec("megatron-530b")).step_flops(2240)
    assert flops / (39.15 * 2240 * 312e12) == pytest.approx(0.542, rel=TOLERANCE)


@given(
    layers=st.integers(1, 9),
    heads=st.integers(1, 9),
    head_dim=st.integers(1, 70),
    tokens=st.integers(1, 500),
    rows=st.integers(1, 9000),
    batch=st.integers(1, 9),
)
def test_any_gpt_meets_the_formula(
    layers: int, heads: int, head_dim: int, tokens: int, rows: int, batch: int
) -> None:
    h = heads * head_dim
    spec = replace(
        model_spec("gpt2"),
        num_layers=layers,
        hidden_size=h,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        ffn_hidden_size=4 * h,
        vocab_size=rows,
        seq_len=tokens,
        positions=tokens,
    )
    flops = build_transformer(spec).step_flops(batch)
    assert flops == pytest.approx(model_flops(spec, batch), rel=1e-12)


@pytest.mark.parametrize("name", ["llama2-7b", "llama3-8b", "llama3-70b", "qwen2-7b"])
def test_llama_step_is_six_per_weight_and_token_plus_attention(name: str) -> None:
    """6 FLOPs per token for each weight of a matrix, 12 b s^2 a d per layer for the scores."""
    spec = model_spec(name)
    h, f, d = spec.hidden_size, spec.ffn_hidden_size, spec.head_dim
    heads = spec.num_attention_heads + spec.num_key_value_heads
    weights = spec.num_layers * (2 * h * heads * d + 3 * h * f) + spec.vocab_size * h
    scores = spec.num_layers * 12 * 2 * spec.seq_len**2 * spec.num_attention_heads * d
    expected = 6 * weights * 2 * spec.seq_len + scores
    assert build_transformer(spec).step_flops(2) == expected


def test_bert_pooler_works_on_one_token_of_each_sequence() -> None:
    spec = model_spec("bert-base")
    model = build_transformer(spec)
    without = build_transformer(replace(spec, pooler=False))
    assert model.forward_flops(4) - without.forward_flops(4) == 4 * 2 * 768 * 768


def test_tying_saves_parameters_but_no_flops() -> None:
    spec = model_spec("gpt2")
    tied, untied = build_transformer(spec), build_transformer(replace(spec, tied_embeddings=False))
    assert tied.step_flops(8) == untied.step_flops(8)


def test_padding_is_computed() -> None:
    spec = model_spec("gpt2")
    padded = build_transformer(replace(spec, padded_vocab_size=51_200))
    extra = padded.forward_flops(1) - build_transformer(spec).forward_flops(1)
    assert extra == 2 * 1024 * 768 * (51_200 - 50_257)


@given(batch=st.integers(1, 64))
def test_step_flops_are_proportional_to_the_batch(batch: int) -> None:
    model = build_transformer(model_spec("bert-large"))
    assert model.step_flops(batch) == batch * model.step_flops(1)
