"""What configs of a family leave out."""

from __future__ import annotations

import pytest

from parsim.model.transformer import TransformerSpec
from tests.parsim.model.huggingface.read_configs import BERT, GPT2, LLAMA, MISTRAL, QWEN2, spec


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
