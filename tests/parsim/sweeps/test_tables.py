"""What is kept of an earlier run, and whether it is the same case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.errors import InputError
from parsim.report.writing import csv_text
from parsim.sweeps import cases_over, run_cases
from parsim.sweeps.table_file import cells_of, read_outcomes
from tests.commands import GPT3, LLAMA
from tests.parsim.sweeps.test_sweeps import BATCHES


def test_rows_of_an_earlier_run_are_kept(tmp_path: Path) -> None:
    table = tmp_path / "s.csv"
    cases = cases_over(Path(LLAMA), (BATCHES,), {})
    keys = tuple(cases[0].values)
    rows = list(run_cases(cases[:1]))
    marked = [replace(rows[0], step_time_s=123.0)]
    table.write_text(csv_text(cells_of(marked, keys)), encoding="utf-8")
    known = read_outcomes(table, keys)
    again = list(run_cases(cases, known=known))
    assert again[0].record() == marked[0].record()  # not run again
    assert again[1].step_time_s < 123.0
    # another question of the same file is another case
    changed = cases_over(Path(LLAMA), (BATCHES,), {"plan.recompute": "full"})
    assert next(run_cases(changed, known=known)).step_time_s < 123.0


def test_csv_reads_as_the_same(tmp_path: Path) -> None:
    cases = cases_over(Path(GPT3), (("plan.pp", ("8", "7")),), {})
    rows = list(run_cases(cases))
    file = tmp_path / "s.csv"
    file.write_text(csv_text(cells_of(rows, ("plan.pp",))), encoding="utf-8")
    again = read_outcomes(file, ("plan.pp",))
    assert again[rows[0].digest] == rows[0]
    assert again[rows[1].digest].error == rows[1].error != ""


def test_a_model_file_that_changed_is_another_case(tmp_path: Path) -> None:
    """Whether the scenario names it, a folder that holds it, or an override does."""
    config = tmp_path / "my model" / "config.json"
    config.parent.mkdir()
    text = "model: {file: my model/config.json}\n"
    for written, changes in (
        (text, {}),
        ("model: {file: 'my model/config.json'}\n", {}),
        ("model:\n  name: my model  # a folder\n", {}),
        ("model: {name: gpt2}\n", {"model.name": f"{tmp_path}/my model"}),
        ("cluster: {catalog: [b.yaml, ./my model/config.json]}\n", {}),
    ):
        (tmp_path / "s.yaml").write_text(written, encoding="utf-8")
        case = cases_over(tmp_path / "s.yaml", (BATCHES,), changes)[0]
        config.write_text("{}", encoding="utf-8")
        before = case.digest
        assert case.digest == before
        config.write_text('{"num_layers": 2}', encoding="utf-8")
        assert case.digest != before


def test_another_version_of_parsim_is_another_case(monkeypatch: pytest.MonkeyPatch) -> None:
    case = cases_over(Path(LLAMA), (BATCHES,), {})[0]
    before = case.digest
    monkeypatch.setattr("parsim.__version__", "0.0.0")
    assert case.digest != before


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "plan.tp,digest\nx\n"])
def test_another_table_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "s.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="is no table of this sweep"):
        read_outcomes(file, ("plan.tp",))


def test_a_table_from_before_rows_said_their_model_is_read(tmp_path: Path) -> None:
    rows = list(run_cases(cases_over(Path(LLAMA), (BATCHES,), {})))
    older = [cells[:-3] for cells in cells_of(rows, (BATCHES[0],))]
    file = tmp_path / "s.csv"
    file.write_text(csv_text(older), encoding="utf-8")
    again = read_outcomes(file, (BATCHES[0],))
    assert again[rows[0].digest].record() == replace(rows[0], model="", speed_unit="").record()
