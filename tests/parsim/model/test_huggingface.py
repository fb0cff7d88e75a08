"""Reading config.json: family defaults, heads, notes and round trips."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import ModelError
from parsim.model.config.families import unlike_note
from parsim.model.config.family_of_spec import family_of
from parsim.model.config.file import read_config
from parsim.model.config.writer import config_from_spec
from parsim.model.huggingface import notes_from_config, spec_from_config
from parsim.model.transformer import TransformerSpec, build_transformer

CONFIGS = Path(__file__).parent / "configs"

GPT2: dict[str, object] = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}
LLAMA: dict[str, object] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 32,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
}
MISTRAL = LLAMA | {"model_type": "mistral", "max_position_embeddings": 32768}
QWEN2 = LLAMA | {"model_type": "qwen2"}
BERT = LLAMA | {"model_type": "bert", "max_position_embeddings": 512}


def spec(config: dict[str, object], **changes: object) -> TransformerSpec:
    return spec_from_config(config | changes, name="test")


# ---------------------------------------------------------------------------- family defaults


def test_gpt2_defaults() -> None:
    assert spec(GPT2) == TransformerSpec(
        name="test",
        num_layers=12,
        hidden_size=768,
        num_attention_heads=12,
        num_key_value_heads=12,
        head_dim=64,
        ffn_hidden_size=3072,
        vocab_size=50257,
        seq_len=1024,
        positions=1024,
        tied_embeddings=True,
        dropout=True,
    )


def test_gpt2_null_inner_size_is_four_times_the_width() -> None:
    assert spec(GPT2, n_inner=None).ffn_hidden_size == 3072


def test_gpt2_stated_inner_size() -> None:
    assert spec(GPT2, n_inner=1000).ffn_hidden_size == 1000


def test_gpt2_untied() -> None:
    assert not spec(GPT2, tie_word_embeddings=False).tied_embeddings


def test_llama_defaults() -> None:
    assert spec(LLAMA) == TransformerSpec(
        name="test",
        num_layers=2,
        hidden_size=64,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=2,
        ffn_hidden_size=96,
        vocab_size=100,
        seq_len=2048,
        norm_epsilon=1e-6,
        rope=True,
        rms_norm=True,
        gated_mlp=True,
        qkv_bias=False,
        projection_bias=False,
        mlp_bias=False,
        tied_embeddings=False,
    )


def test_llama_attention_bias_is_on_all_four_projections() -> None:
    read = spec(LLAMA, attention_bias=True)
    assert (read.qkv_bias, read.projection_bias, read.mlp_bias) == (True, True, False)


def test_llama_mlp_bias() -> None:
    read = spec(LLAMA, mlp_bias=True)
    assert (read.qkv_bias, read.projection_bias, read.mlp_bias) == (False, False, True)


def test_llama_stated_head_dim_need_not_make_up_the_width() -> None:
    assert spec(LLAMA, head_dim=128).head_dim == 128


def test_llama_null_head_dim_is_an_equal_share() -> None:
    assert spec(LLAMA, head_dim=None).head_dim == 2


def test_llama_tied() -> None:
    assert spec(LLAMA, tie_word_embeddings=True).tied_embeddings


@pytest.mark.parametrize(("config", "heads"), [(LLAMA, 32), (MISTRAL, 8), (QWEN2, 32)])
def test_key_value_heads_where_absent(config: dict[str, object], heads: int) -> None:
    assert spec(config).num_key_value_heads == heads


@pytest.mark.parametrize("config", [LLAMA, MISTRAL, QWEN2])
def test_key_value_heads_where_null(config: dict[str, object]) -> None:
    assert spec(config, num_key_value_heads=None).num_key_value_heads == 32


def test_mistral_ignores_keys_that_only_llama_has() -> None:
    read = spec(MISTRAL, attention_bias=True, mlp_bias=True)
    assert (read.qkv_bias, read.projection_bias, read.mlp_bias) == (False, False, False)


def test_qwen2_has_a_bias_on_query_key_and_value_only() -> None:
    read = spec(QWEN2)
    assert (read.qkv_bias, read.projection_bias, read.mlp_bias) == (True, False, False)
    assert not read.tied_embeddings


def test_bert_defaults() -> None:
    assert spec(BERT) == TransformerSpec(
        name="test",
        num_layers=2,
        hidden_size=64,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=2,
        ffn_hidden_size=96,
        vocab_size=100,
        seq_len=512,
        positions=512,
        norm_epsilon=1e-12,
        token_types=2,
        post_norm=True,
        causal=False,
        pooler=True,
        head="none",
        dropout=True,
    )


def test_bert_decoder_is_causal() -> None:
    assert spec(BERT, is_decoder=True).causal


def test_bert_token_types() -> None:
    assert spec(BERT, type_vocab_size=16).token_types == 16


# ------------------------------------------------------------------------- what BERT's class says


@pytest.mark.parametrize(
    ("architecture", "pooler", "head"),
    [
        ("BertModel", True, "none"),
        ("BertForMaskedLM", False, "mlm"),
        ("BertForPreTraining", True, "mlm"),
        ("BertLMHeadModel", False, "mlm"),
        ("BertForSequenceClassification", True, "none"),
    ],
)
def test_bert_class_decides_pooler_and_head(architecture: str, pooler: bool, head: str) -> None:
    read = spec(BERT, architectures=[architecture])
    assert (read.pooler, read.head) == (pooler, head)


def test_bert_masked_lm_count() -> None:
    """The pooler goes; dense and norm of the transform and a bias per word come."""
    config = read_config(CONFIGS / "bert-base.json") | {"architectures": ["BertForMaskedLM"]}
    assert build_transformer(spec(config)).parameters == 109_514_298


def test_bert_pre_training_count_lacks_the_next_sentence_classifier() -> None:
    config = read_config(CONFIGS / "bert-base.json") | {"architectures": ["BertForPreTraining"]}
    assert build_transformer(spec(config)).parameters == 110_106_428 - (2 * 768 + 2)


# ------------------------------------------------------------------------------ length and dropout


def test_sequence_length_can_be_chosen() -> None:
    assert spec_from_config(LLAMA, name="long", seq_len=8192).seq_len == 8192
    assert spec_from_config(GPT2, name="short", seq_len=128).positions == 1024


def test_rotary_model_needs_no_longest_sequence_where_one_is_chosen() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    assert spec_from_config(config, name="test", seq_len=64).seq_len == 64


@pytest.mark.parametrize("key", ["resid_pdrop", "embd_pdrop", "attn_pdrop"])
def test_any_gpt2_dropout_counts(key: str) -> None:
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0, "attn_pdrop": 0.0}
    assert not spec(GPT2, **off).dropout
    assert spec(GPT2, **off | {key: 0.1}).dropout


def test_bert_without_dropout() -> None:
    assert not spec(BERT, hidden_dropout_prob=0, attention_probs_dropout_prob=0.0).dropout


@pytest.mark.parametrize(("value", "dropout"), [(0.0, False), (0.1, True), (None, False)])
def test_llama_attention_dropout(value: object, dropout: bool) -> None:
    assert spec(LLAMA, attention_dropout=value).dropout is dropout


# ------------------------------------------------------------------------------------------- notes


@pytest.mark.parametrize("config", [GPT2, LLAMA, QWEN2, BERT, LLAMA | {"sliding_window": 8}])
def test_plain_configs_need_no_note(config: dict[str, object]) -> None:
    assert notes_from_config(config) == ()


@pytest.mark.parametrize(
    ("changes", "window"),
    [({}, 4096), ({"sliding_window": 1024}, 1024), ({"sliding_window": None}, 0)],
)
def test_a_sliding_window_is_that_of_the_model(changes: dict[str, object], window: int) -> None:
    assert notes_from_config(MISTRAL | changes) == ()
    assert spec(MISTRAL | changes).window == window


def test_qwen2_window_counts_where_it_is_switched_on() -> None:
    assert notes_from_config(QWEN2 | {"sliding_window": 16}) == ()
    assert notes_from_config(QWEN2 | {"sliding_window": 16, "use_sliding_window": True}) == (
        "sliding_window=16 is not modelled: attention is costed over all 2048 tokens of a sequence",
    )


def test_note_of_dropout_in_attention_only() -> None:
    assert notes_from_config(LLAMA | {"attention_dropout": 0.1}) == (
        "dropout is costed everywhere although only attention_dropout is above 0",
    )


def test_note_of_partial_gpt2_dropout() -> None:
    assert notes_from_config(GPT2 | {"attn_pdrop": 0.0}) == (
        "dropout is costed everywhere although only resid_pdrop, embd_pdrop is above 0",
    )


def test_note_of_the_next_sentence_classifier() -> None:
    assert notes_from_config(BERT | {"architectures": ["BertForPreTraining"]}) == (
        "the next-sentence classifier (2 x hidden_size + 2 parameters) is left out",
    )


def test_note_of_a_bert_task_head() -> None:
    assert notes_from_config(BERT | {"architectures": ["BertForTokenClassification"]}) == (
        "architectures=BertForTokenClassification: the encoder with its pooler is costed, no head",
    )


def test_note_of_another_head_than_a_language_models() -> None:
    assert notes_from_config(LLAMA | {"architectures": ["LlamaForSequenceClassification"]}) == (
        "architectures=LlamaForSequenceClassification: a language-model head is costed instead",
    )


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.json")), ids=lambda file: file.stem)
def test_published_configs_need_no_note_but_their_familys(file: Path) -> None:
    config = read_config(file)
    assert "".join(notes_from_config(config)) == unlike_note(config["model_type"])


# ------------------------------------------------------------------------------------- round trips


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


# --------------------------------------------------------------------------- rotation and routing


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, ("none", 10_000.0, 1.0)),
        ({"rope_theta": 500000}, ("none", 500_000.0, 1.0)),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, ("linear", 10_000.0, 4.0)),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 2.0}},
            ("yarn", 1e6, 2.0),
        ),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, ("none", 1e6, 1.0)),
    ],
)
def test_rotation_as_old_and_new_files_have_it(
    changes: dict[str, object], fields: tuple[str, float, float]
) -> None:
    read = spec(LLAMA, **changes)
    assert (read.rope_scaling, read.rope_theta, read.rope_factor) == fields


def test_an_unknown_scaling_is_refused() -> None:
    with pytest.raises(ModelError, match="rope_type=longrope in a llama config is not supported"):
        spec(LLAMA, rope_scaling={"rope_type": "longrope"})


def test_a_scaling_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(ModelError, match="rope_scaling=3 in a llama config must be a mapping"):
        spec(LLAMA, rope_scaling=3)


def test_qwen3_normalises_queries_and_keys_and_has_no_biases() -> None:
    qwen3 = LLAMA | {"model_type": "qwen3"}
    read = spec(qwen3)
    assert (read.qk_norm, read.qkv_bias, read.projection_bias) == (True, False, False)
    assert (read.num_key_value_heads, read.head_dim) == (32, 128)
    assert spec(qwen3, attention_bias=True).projection_bias
    written = config_from_spec(read)
    assert (written["model_type"], written["architectures"]) == ("qwen3", ["Qwen3ForCausalLM"])
    assert spec(written) == read
