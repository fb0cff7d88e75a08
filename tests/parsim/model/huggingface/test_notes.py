"""What is noted of a config that a spec cannot say."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.model.config.families import unlike_note
from parsim.model.config.file import read_config
from parsim.model.huggingface import notes_from_config
from tests.parsim.model.huggingface.read_configs import (
    BERT,
    CONFIGS,
    GPT2,
    LLAMA,
    MISTRAL,
    QWEN2,
    spec,
)


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
