"""What a class says of BERT, and what lengths and dropout a config has."""

from __future__ import annotations

import pytest

from parsim.model.config.file import read_config
from parsim.model.huggingface import spec_from_config
from parsim.model.transformer import build_transformer
from tests.parsim.model.huggingface.read_configs import BERT, CONFIGS, GPT2, LLAMA, spec


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
