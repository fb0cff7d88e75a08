"""Every error of the config.json reader that is about its values, word for word."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import InputError, ModelError
from parsim.model.config.families import FAMILIES
from parsim.model.huggingface import notes_from_config, spec_from_config
from tests.parsim.model.huggingface.refused import LLAMA, SIZES

BERT = SIZES | {"model_type": "bert"}

GPT2: dict[str, object] = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 64,
    "n_head": 8,
    "n_positions": 512,
    "vocab_size": 100,
}

SUPPORTED = (
    f"supported: {', '.join(sorted(FAMILIES))}; of another family write the sizes into the model "
    "block, or `parsim profile` the module"
)


def message(config: dict[str, object], seq_len: int | None = None) -> str:
    with pytest.raises(ModelError) as error:
        spec_from_config(config, name="test", seq_len=seq_len)
    return str(error.value)


@pytest.mark.parametrize(
    ("model_type", "guess"),
    [
        ("llamma", " (did you mean 'llama'?)"),
        ("qwen", " (did you mean 'qwen2' or 'qwen3' or 'qwen3_moe'?)"),
        ("t5", ""),
    ],
)
def test_unknown_model_type(model_type: str, guess: str) -> None:
    expected = f'model_type="{model_type}" is not supported{guess}; {SUPPORTED}'
    assert message(LLAMA | {"model_type": model_type}) == expected


@pytest.mark.parametrize(("value", "text"), [(None, "null"), (5, "5"), (["llama"], '["llama"]')])
def test_model_type_that_is_no_text(value: object, text: str) -> None:
    text_told = message(LLAMA | {"model_type": value})
    assert text_told.startswith(f"model_type={text} is not supported")
    assert text_told.endswith(f"; {SUPPORTED}")


@pytest.mark.parametrize("value", [[], {}, ["silu"], 5])
def test_an_activation_that_is_no_text(value: object) -> None:
    assert message(LLAMA | {"hidden_act": value}).startswith(f"hidden_act={json.dumps(value)} ")


def test_no_model_type() -> None:
    assert message(SIZES) == f"config has no key 'model_type'; {SUPPORTED}"


def test_notes_refuse_the_same() -> None:
    with pytest.raises(ModelError, match="config has no key 'model_type'"):
        notes_from_config(SIZES)


@pytest.mark.parametrize("config", [LLAMA, BERT, GPT2], ids=["llama", "bert", "gpt2"])
def test_each_size_must_be_there(config: dict[str, object]) -> None:
    family = config["model_type"]
    for key in config.keys() - {"model_type"}:
        rest = {name: value for name, value in config.items() if name != key}
        expected = f"{family} config has no key '{key}'; add it, it decides the model's size"
        assert message(rest) == expected


def test_learned_positions_must_be_there_even_where_a_length_is_chosen() -> None:
    config = {key: value for key, value in BERT.items() if key != "max_position_embeddings"}
    assert message(config, seq_len=128) == (
        "bert config has no key 'max_position_embeddings'; add it, it decides the model's size"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("64", '"64"'),
        (True, "true"),
        (None, "null"),
        (64.0, "64.0"),
        ([64], "[64]"),
        (0, "0"),
        (-1, "-1"),
        (float("inf"), "Infinity"),
    ],
)
def test_size_that_is_no_whole_number(value: object, text: str) -> None:
    expected = f"hidden_size={text} in a llama config must be a whole number of at least 1"
    assert message(LLAMA | {"hidden_size": value}) == expected


@pytest.mark.parametrize("key", ["num_key_value_heads", "head_dim"])
def test_optional_size_that_is_no_whole_number(key: str) -> None:
    expected = f'{key}="4" in a llama config must be a whole number of at least 1'
    assert message(LLAMA | {key: "4"}) == expected


def test_inner_size_that_is_no_whole_number() -> None:
    expected = "n_inner=false in a gpt2 config must be a whole number of at least 1"
    assert message(GPT2 | {"n_inner": False}) == expected


@pytest.mark.parametrize(("value", "text"), [("yes", '"yes"'), (1, "1"), (None, "null")])
def test_switch_that_is_no_switch(value: object, text: str) -> None:
    expected = f"tie_word_embeddings={text} in a llama config must be true or false"
    assert message(LLAMA | {"tie_word_embeddings": value}) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [("0.1", '"0.1"'), (True, "true"), (1.5, "1.5"), (-0.1, "-0.1"), (float("nan"), "NaN")],
)
def test_probability_that_is_none(value: object, text: str) -> None:
    expected = f"resid_pdrop={text} in a gpt2 config must be a number from 0 to 1"
    assert message(GPT2 | {"resid_pdrop": value}) == expected


@pytest.mark.parametrize(("value", "text"), [("BertModel", '"BertModel"'), ([1], "[1]")])
def test_architectures_that_are_no_list_of_names(value: object, text: str) -> None:
    expected = f"architectures={text} in a bert config must be a list of class names"
    assert message(BERT | {"architectures": value}) == expected


def test_heads_that_do_not_divide_the_width() -> None:
    expected = "num_attention_heads=7 does not divide hidden_size=64"
    assert message(LLAMA | {"num_attention_heads": 7}) == expected


def test_heads_that_do_not_divide_the_width_of_gpt2() -> None:
    assert message(GPT2 | {"n_head": 7}) == "n_head=7 does not divide n_embd=64"


def test_key_value_heads_that_do_not_divide_the_heads() -> None:
    expected = "num_key_value_heads=3 does not divide num_attention_heads=8"
    assert message(LLAMA | {"num_key_value_heads": 3}) == expected


def test_sequence_longer_than_the_positions() -> None:
    expected = "seq_len=1024 is longer than the 512 learned positions; use seq_len <= 512"
    assert message(GPT2, seq_len=1024) == expected


def test_empty_sequence() -> None:
    assert message(LLAMA, seq_len=0) == "seq_len=0 must be at least 1"


@pytest.mark.parametrize("config", [GPT2, BERT], ids=["gpt2", "bert"])
def test_cross_attention_is_refused(config: dict[str, object]) -> None:
    assert message(config | {"add_cross_attention": True}) == (
        f"add_cross_attention=true in a {config['model_type']} config must be false; "
        "anything else is not supported"
    )


def test_relative_positions_are_refused() -> None:
    assert message(BERT | {"position_embedding_type": "relative_key"}) == (
        'position_embedding_type="relative_key" in a bert config must be "absolute"; '
        "anything else is not supported"
    )


values: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([])
)

keys = st.sampled_from([*LLAMA, *GPT2, "head_dim", "n_inner", "architectures", "sliding_window"])


@given(
    st.sampled_from(["bert", "gpt2", "llama", "mistral", "qwen2"]),
    st.dictionaries(keys, values, max_size=3),
)
def test_garbage_is_read_or_refused_but_never_a_traceback(
    family: str, garbage: dict[str, object]
) -> None:
    config = SIZES | GPT2 | {"model_type": family} | garbage
    with suppress(InputError):
        spec_from_config(config, name="test")
    with suppress(InputError):
        notes_from_config(config)
