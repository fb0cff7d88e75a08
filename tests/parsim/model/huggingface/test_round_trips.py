"""Configs that are written, read as they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import ModelError
from parsim.model.config.family_of_spec import family_of
from parsim.model.config.file import read_config
from parsim.model.config.writer import config_from_spec
from parsim.model.huggingface import spec_from_config
from parsim.model.transformer import TransformerSpec
from tests.parsim.model.huggingface.read_configs import CONFIGS, GPT2, spec

sizes = st.integers(1, 10**6)
small = st.floats(1e-12, 1e-3)


@st.composite
def rotations(draw: st.DrawFn) -> dict[str, Any]:
    """Base and scaling of rotary positions."""
    kind = draw(st.sampled_from(("none", "linear", "llama3", "yarn")))
    fields: dict[str, Any] = {"rope_scaling": kind, "rope_theta": draw(st.floats(2.0, 1e9))}
    if kind != "none":
        fields["rope_factor"] = draw(st.floats(1.0, 100.0))
    if kind in ("llama3", "yarn"):
        fields["rope_original_positions"] = draw(sizes)
        fields["rope_low_freq_factor"] = draw(st.floats(0.5, 3.0))
        fields["rope_high_freq_factor"] = draw(st.floats(3.5, 64.0))
        fields["rope_attention_factor"] = draw(st.sampled_from((0.0, 1.25)))
    return fields


@st.composite
def llamas(draw: st.DrawFn) -> TransformerSpec:
    kv_heads, bias = draw(sizes), draw(st.booleans())
    return TransformerSpec(
        name="random",
        num_layers=draw(st.integers(1, 200)),
        hidden_size=draw(sizes),
        num_attention_heads=kv_heads * draw(st.integers(1, 8)),
        num_key_value_heads=kv_heads,
        head_dim=draw(sizes),
        ffn_hidden_size=draw(sizes),
        vocab_size=draw(sizes),
        seq_len=draw(sizes),
        norm_epsilon=draw(small),
        **draw(rotations()),
        rope=True,
        rms_norm=True,
        gated_mlp=True,
        qkv_bias=bias,
        projection_bias=bias,
        mlp_bias=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        dropout=draw(st.booleans()),
    )


@st.composite
def gpt2s(draw: st.DrawFn) -> TransformerSpec:
    heads, head_dim, tokens = draw(sizes), draw(sizes), draw(sizes)
    return TransformerSpec(
        name="random",
        num_layers=draw(st.integers(1, 200)),
        hidden_size=heads * head_dim,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_dim,
        ffn_hidden_size=draw(sizes),
        vocab_size=draw(sizes),
        seq_len=tokens,
        positions=tokens,
        norm_epsilon=draw(small),
        tied_embeddings=draw(st.booleans()),
        dropout=draw(st.booleans()),
    )


@given(llamas())
def test_llama_round_trip(spec: TransformerSpec) -> None:
    config = json.loads(json.dumps(config_from_spec(spec)))
    assert spec_from_config(config, name="random") == spec


@given(gpt2s())
def test_gpt2_round_trip(spec: TransformerSpec) -> None:
    config = json.loads(json.dumps(config_from_spec(spec)))
    assert spec_from_config(config, name="random") == spec


@given(llamas(), st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=4))
def test_keys_of_others_change_nothing(spec: TransformerSpec, others: dict[str, object]) -> None:
    config = {f"x_{key}": value for key, value in others.items()} | config_from_spec(spec)
    assert spec_from_config(config, name="random") == spec


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.json")), ids=lambda file: file.stem)
def test_published_configs_are_written_as_they_were_read(file: Path) -> None:
    read = spec_from_config(read_config(file), name=file.stem)
    if read.window and read.num_experts:
        with pytest.raises(ModelError, match="is of no Hugging Face family that parsim writes"):
            family_of(read)
        return
    written = json.loads(json.dumps(config_from_spec(read)))
    assert spec_from_config(written, name=file.stem) == read


def test_a_model_of_no_family_says_what_is_not_like_the_nearest() -> None:
    gated = replace(spec(GPT2), gated_mlp=True)
    with pytest.raises(ModelError) as caught:
        family_of(gated)
    assert str(caught.value) == (
        "test is of no Hugging Face family that parsim writes; the nearest, gpt2, differs in "
        "gated_mlp=True"
    )
