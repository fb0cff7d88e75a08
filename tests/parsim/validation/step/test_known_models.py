"""Sizes that a table leaves blank: looked up by the model's name, derived from its family, told."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from parsim.validation.predict_row import predict_row
from parsim.validation.step.blank_sizes import EXPERTS, SIZES, blank_sizes, filled_cells
from parsim.validation.step.case import build_case
from parsim.validation.step.known_models import is_named_after, known_mixture, known_model
from parsim.validation.step.row_reader import parse_row
from parsim.validation.validate import read_table
from tests.commands import Cli, write_rows
from tests.parsim.validation.conftest import MakeRow

BLANK = dict.fromkeys(SIZES, "")


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("LLAMA3_70B", "llama3-70b"),
        ("Llama 3.1 8B", "llama3-8b"),
        ("Llama3-405B trimmed", "llama3.1-405b"),
        ("GPT-3 175B", "gpt3-175b"),
        ("GPT 530B", "megatron-530b"),
        ("gpt2_xl", "gpt2-xl"),
        ("BERT-Large", "bert-large"),
        ("Qwen2 7B", "qwen2-7b"),
        ("DeepSeek-V3.1", "deepseek-v3"),
        ("GPT 22B", None),
        ("GPT-2.7B", None),
        ("Qwen-27B", None),
        ("Llama 2 34B", None),
        ("MPT-7b", None),
    ],
)
def test_a_name_stands_for_a_model_of_the_catalog(name: str, model: str | None) -> None:
    spec = known_model(name)
    assert (spec and spec.name) == model


def test_a_size_in_the_rest_of_a_name_must_be_the_models() -> None:
    small, mixture = known_model("GPT-2 774M"), known_model("Nemotron 3 Nano 30B-A3B")
    assert small is not None
    assert mixture is not None
    assert not is_named_after("GPT-2 774M", small)
    assert is_named_after("GPT-2 124M", small)
    assert is_named_after("Nemotron 3 Nano 30B-A3B", mixture)
    assert blank_sizes({"model": "GPT-2 774M", **BLANK}).keys() == {"vocab_size"}


def test_a_dense_model_has_no_experts() -> None:
    assert known_mixture("Llama3-8B") is None
    assert not set(EXPERTS) & set(blank_sizes({"model": "Llama3-8B"}))


def test_blank_sizes_of_a_known_model_are_looked_up(row: MakeRow) -> None:
    run = parse_row(row(model="Llama 3.1 8B", **BLANK))
    assert (run.n_layers, run.hidden_size, run.n_heads, run.n_kv_heads) == (32, 4096, 32, 8)
    assert (run.ffn_hidden_size, run.vocab_size) == (14336, 128256)
    assert run.filled[0] == "n_layers=32 (llama3-8b of the catalog)"
    assert len(run.filled) == 6
    built = build_case(run)
    assert built.job.model.parameters == 8_030_261_248
    assert "model 'Llama 3.1 8B': sizes that are not stated are those of llama3-8b" in built.notes


def test_what_a_row_states_stays() -> None:
    row = {"model": "DeepSeek-V3 trimmed", "n_layers": "4", "hidden_size": ""}
    filled = filled_cells(blank_sizes(row))
    assert "n_layers" not in filled
    assert (filled["hidden_size"], filled["n_experts"]) == ("7168", "256")


def test_another_width_is_another_model() -> None:
    """Its switches may be the model's, its sizes are not."""
    filled = filled_cells(
        blank_sizes({"model": "Llama 3 8B", "hidden_size": "2048", "n_heads": "16"})
    )
    assert filled == {"n_kv_heads": "16", "vocab_size": "128256"}


@pytest.mark.parametrize(
    ("name", "width", "vocabulary"),
    [
        ("GPT-3 13B", "20560", "51200"),
        ("Nemotron-4 15B", "20560", "256000"),
        ("MPT-7b", "20560", "50368"),
        ("BERT", "20560", "30522"),
        ("Llama 2 34B", None, "32000"),
        ("Mistral 24B", None, "32000"),
    ],
)
def test_what_a_family_implies(name: str, width: str | None, vocabulary: str) -> None:
    """4 h where the MLP has no gate; a gated one has no usual width."""
    filled = filled_cells(blank_sizes({"model": name, "hidden_size": "5140", "n_heads": "40"}))
    assert (filled.get("ffn_hidden_size"), filled["vocab_size"]) == (width, vocabulary)
    assert filled["n_kv_heads"] == "40"


def test_a_size_that_nothing_is_known_of_is_named(row: MakeRow) -> None:
    told = predict_row("t", row(model="ours", n_heads="", n_kv_heads="")).reason
    assert told == (
        "n_heads is not stated and not known of model 'ours'; write it, or a name of "
        "`parsim catalog models`"
    )


def test_the_columns_of_sizes_may_be_absent(row: MakeRow, tmp_path: Path) -> None:
    shown = {name: cell for name, cell in row(model="GPT 1.7B").items() if name not in SIZES}
    path = tmp_path / "t.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([shown.keys(), shown.values()])
    (bare,) = read_table(path)
    assert predict_row("t", bare).predicted_step == predict_row("t", row()).predicted_step


def test_verbose_and_the_document_say_what_was_filled(cli: Cli, tmp_path: Path) -> None:
    table = write_rows(tmp_path / "mine.csv", {"ffn_hidden_size": "", "model": "our GPT"}, {})
    brief, verbose = cli("validate", table).out, cli("validate", table, "-v").out
    line = "our GPT, 1 rows, blank sizes: ffn_hidden_size=9216 (4 x hidden_size, as of family gpt)"
    assert line in verbose.splitlines()
    assert line not in brief
    first, second = cli("validate", table, "--json").document["rows"]
    assert first["filled_sizes"] == ["ffn_hidden_size=9216 (4 x hidden_size, as of family gpt)"]
    assert second["filled_sizes"] == []
