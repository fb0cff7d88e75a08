"""Parameter counts: the published ones exactly, and any other against a list of its tensors."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.model.config.file import read_config
from parsim.model.huggingface import spec_from_config
from parsim.model.reader import model_spec
from parsim.model.transformer import TransformerSpec, build_transformer

CONFIGS = Path(__file__).parent / "configs"

# What each published checkpoint holds; BERT with its pooler and without a head.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "qwen2-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "mixtral-8x7b": 46_702_792_704,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-120b": 116_829_156_672 - 36 * 64,  # without a sink for each head
    "deepseek-v3": 671_026_404_352,  # without the correction biases of its routers, 58 x 256
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
}

# Name in the catalog -> billions, as Narayanan et al. 2021 print them in table 1.
TABLE_1 = {
    "gpt-1.7b": 1.7,
    "gpt-3.6b": 3.6,
    "gpt-7.5b": 7.5,
    "gpt-18.4b": 18.4,
    "gpt-39.1b": 39.1,
    "gpt-76.1b": 76.1,
    "gpt-145.6b": 145.6,
    "gpt-310.1b": 310.1,
    "gpt-529.6b": 529.6,
    "gpt-1008b": 1008.0,
}


def count(spec: TransformerSpec) -> int:
    return build_transformer(spec).parameters


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_catalog_model_has_the_published_count(name: str, parameters: int) -> None:
    assert count(model_spec(name)) == parameters


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_config_has_the_published_count(name: str, parameters: int) -> None:
    config = read_config(CONFIGS / f"{name}.json")
    assert count(spec_from_config(config, name=name)) == parameters


@pytest.mark.parametrize("name", PUBLISHED)
def test_config_and_catalog_are_the_same_spec(name: str) -> None:
    spec = model_spec(name)
    config = read_config(CONFIGS / f"{name}.json")
    assert spec_from_config(config, name=name, seq_len=spec.seq_len) == spec


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("llama2-13b", 13_015_864_320),
        ("llama2-70b", 68_976_648_192),
    ],
)
def test_other_catalog_counts(name: str, parameters: int) -> None:
    assert count(model_spec(name)) == parameters


@pytest.mark.parametrize(("name", "billions"), TABLE_1.items())
def test_megatron_counts_round_to_the_table(name: str, billions: float) -> None:
    assert round(count(model_spec(name)) / 1e9, 1) == billions


@pytest.mark.parametrize(
    "name", [*TABLE_1, "megatron-22b", "megatron-530b", "megatron-1t", "gpt3-5b", "gpt3-20b"]
)
def test_megatron_counts_equal_the_papers_formula(name: str) -> None:
    """P = 12 l h^2 (1 + 13/(12h) + (V + s)/(12 l h)), which leaves out the final norm's 2h."""
    spec = model_spec(name)
    layers, h = spec.num_layers, spec.hidden_size
    formula = 12 * layers * h**2 + 13 * layers * h + (spec.vocab_rows + 2048) * h
    assert count(spec) == formula + 2 * h


def test_gpt3_175b_rounds_to_174_6_billion() -> None:
    assert round(count(model_spec("gpt3-175b")) / 1e9, 1) == 174.6


def test_untied_output_adds_a_table() -> None:
    spec = model_spec("gpt2")
    untied = replace(spec, tied_embeddings=False)
    assert count(untied) - count(spec) == 50257 * 768


def test_padding_adds_rows_to_the_tied_table_once() -> None:
    spec = model_spec("gpt2")
    padded = replace(spec, padded_vocab_size=50304)
    assert count(padded) - count(spec) == (50304 - 50257) * 768


def test_padding_adds_rows_to_both_untied_tables() -> None:
    spec = model_spec("llama3-8b")
    padded = replace(spec, padded_vocab_size=128_512)
    assert count(padded) - count(spec) == 2 * (128_512 - 128_256) * 4096


def test_fused_attention_and_dropout_change_no_parameter() -> None:
    spec = model_spec("gpt2")
    assert count(replace(spec, fused_attention=False, dropout=False)) == count(spec)


@st.composite
def specs(draw: st.DrawFn) -> TransformerSpec:
    size = st.integers(1, 40)
    kv_heads, vocab_size = draw(st.integers(1, 4)), draw(size)
    tokens = draw(size)
    return TransformerSpec(
        name="random",
        num_layers=draw(st.integers(1, 5)),
        hidden_size=draw(size),
        num_attention_heads=kv_heads * draw(st.integers(1, 4)),
        num_key_value_heads=kv_heads,
        head_dim=draw(size),
        ffn_hidden_size=draw(size),
        vocab_size=vocab_size,
        seq_len=tokens,
        padded_vocab_size=draw(st.none() | st.integers(vocab_size, 64)),
        positions=draw(st.just(0) | st.integers(tokens, 64)),
        token_types=draw(st.integers(0, 2)),
        head=draw(st.sampled_from(["lm", "mlm", "none"])),
        **{  # type: ignore[arg-type]
            flag: draw(st.booleans())
            for flag in (
                "rope",
                "rms_norm",
                "gated_mlp",
                "qkv_bias",
                "projection_bias",
                "mlp_bias",
                "post_norm",
                "tied_embeddings",
                "causal",
                "pooler",
                "fused_attention",
                "dropout",
            )
        },
    )


def tensors(spec: TransformerSpec) -> list[tuple[int, ...]]:
    """Shape of every weight, as a checkpoint would list them."""
    h, f, d = spec.hidden_size, spec.ffn_hidden_size, spec.head_dim
    rows = spec.vocab_size if spec.padded_vocab_size is None else spec.padded_vocab_size
    norm: list[tuple[int, ...]] = [(h,)] if spec.rms_norm else [(h,), (h,)]
    shapes: list[tuple[int, ...]] = [(rows, h), (spec.positions, h), (spec.token_types, h)]
    block: list[tuple[int, ...]] = [*norm, *norm]
    for heads in (spec.num_attention_heads, spec.num_key_value_heads, spec.num_key_value_heads):
        block += [(h, heads * d)] + [(heads * d,)] * spec.qkv_bias
    block += [(spec.num_attention_heads * d, h)] + [(h,)] * spec.projection_bias
    for _ in range(2 if spec.gated_mlp else 1):
        block += [(h, f)] + [(f,)] * spec.mlp_bias
    block += [(f, h)] + [(h,)] * spec.mlp_bias
    shapes += block * spec.num_layers
    shapes += norm  # after the last block, or after the embedding in BERT's order
    if spec.pooler:
        shapes += [(h, h), (h,)]
    if spec.head == "mlm":
        shapes += [(h, h), (h,), *norm, (rows,)]
    if spec.head != "none" and not spec.tied_embeddings:
        shapes += [(rows, h)]
    return shapes


@given(specs())
def test_any_count_is_the_sum_over_its_tensors(spec: TransformerSpec) -> None:
    assert count(spec) == sum(prod(shape) for shape in tensors(spec))


@given(specs())
def test_split_and_repeated_parameters_are_all_parameters(spec: TransformerSpec) -> None:
    model = build_transformer(spec)
    parts = model.layers
    split = sum(part.split_parameters for part in parts)
    repeated = sum(part.repeated_parameters for part in parts)
    assert split + repeated == model.parameters


@given(specs())
def test_layers_are_one_shared_object(spec: TransformerSpec) -> None:
    model = build_transformer(spec)
    assert model.num_layers == spec.num_layers
    assert len({id(layer) for layer in model.blocks}) == len(model.kinds) == 1
