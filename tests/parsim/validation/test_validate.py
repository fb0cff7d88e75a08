"""Signed errors, their summaries, and rows that end as a reason."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.validation.coverage import summarise
from parsim.validation.predict_row import predict_row
from parsim.validation.tables import all_step_tables, blind_tables, shipped_tables
from parsim.validation.validate import Validation, _unread, read_table, validate
from parsim.validation.validated_row import ValidatedRow
from tests.parsim.validation.conftest import MakeRow


def test_a_summary_by_hand() -> None:
    errors = [0.01, -0.02, 0.03, -0.04, 0.05, -0.06, 0.07, -0.08, 0.09, -0.20]
    summary = summarise(errors, 3)
    assert (summary.n, summary.n_skipped) == (10, 3)
    assert summary.mean_abs_error == pytest.approx(0.65 / 10)
    assert summary.median_abs_error == pytest.approx((0.05 + 0.06) / 2)
    assert summary.p90_abs_error == 0.09  # the 9th of 10
    assert summary.max_abs_error == 0.20
    assert summary.bias == pytest.approx((0.25 - 0.40) / 10)


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (2, 2), (9, 9), (10, 9), (11, 10), (20, 18)])
def test_the_ninetieth_percentile_is_of_nearest_rank(n: int, rank: int) -> None:
    assert summarise([i / 100 for i in range(1, n + 1)], 0).p90_abs_error == rank / 100


@given(st.lists(st.floats(-1, 10), min_size=1))
def test_summaries_are_in_order(errors: list[float]) -> None:
    first = summarise(errors, 0)
    assert first.mean_abs_error is not None
    assert first.bias is not None
    assert (
        0
        <= (first.median_abs_error or 0)
        <= (first.p90_abs_error or 0)
        <= (first.max_abs_error or 0)
    )
    assert abs(first.bias) <= first.mean_abs_error * (1 + 1e-9)


def test_slow_predictions_have_a_positive_bias() -> None:
    row = ValidatedRow(table="t", row_id="1", predicted_step=1.1, measured_step=1.0)
    assert row.error == pytest.approx(0.1)
    assert summarise([row.error or 0.0], 0).bias == pytest.approx(0.1)


def test_a_summary_of_nothing() -> None:
    summary = summarise([], 4).to_json()
    assert (summary.pop("n"), summary.pop("n_skipped")) == (0, 4)
    assert set(summary.values()) == {None}


# --------------------------------------------------------------------------- rows


def test_a_row_is_predicted(row: MakeRow) -> None:
    predicted = predict_row("t", row(peak_memory_gib="40"))
    assert not predicted.skipped
    assert (predicted.model, predicted.system, predicted.stack) == (
        "GPT 1.7B",
        "4 x dgx-a100",
        "megatron-2021",
    )
    assert predicted.plan == "tp1 pp1 dp32 mb16 m1 no-pipeline recompute-full"
    assert predicted.error == pytest.approx((predicted.predicted_step or 0) / 3.528 - 1)
    assert predicted.memory_error == pytest.approx(
        (predicted.predicted_peak or 0) / (40 * 2**30) - 1
    )


def test_a_row_of_memory_alone_has_no_time_error(row: MakeRow) -> None:
    predicted = predict_row("t", row(step_time_s="", peak_memory_gib="40"))
    assert predicted.error is None
    assert predicted.memory_error is not None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tp": "x"}, "tp='x' is not a whole number"),
        ({"zero_stage": "7"}, "zero_stage=7 is unknown; allowed: 0, 1, 2, 3"),
        (
            {"pp": "32", "dp": "1", "n_micro_batches": "32"},
            "more stages than layers: pp=32 x v=1 = 32 stages for 24 layers, embedding, head; "
            "use pp x v <= 26",
        ),
        (
            {"tp": "16", "dp": "2", "n_micro_batches": "16"},
            "tp=16 does not divide num_attention_heads=24; allowed: 1, 2, 3, 4, 6, 8, 12, 24",
        ),
    ],
)
def test_rows_end_as_a_reason(row: MakeRow, changes: dict[str, str], told: str) -> None:
    predicted = predict_row("t", row(**changes))
    assert (predicted.skipped, predicted.reason) == (True, told)
    assert (predicted.predicted_step, predicted.error) == (None, None)


def test_a_row_without_a_name(row: MakeRow) -> None:
    assert predict_row("t", row(row_id="")).row_id == "(no row_id)"


# --------------------------------------------------------------------------- tables


def write(path: Path, *rows: dict[str, str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_tables_have_summaries_of_their_own(tmp_path: Path, row: MakeRow) -> None:
    first = write(tmp_path / "one.csv", row(), row(tp="x"), row(peak_memory_gib="40"))
    two = write(tmp_path / "two.csv", row(dp="3"))
    validation = validate([first, two])
    assert validation.tables == ("one", "two")
    assert [len(validation.of(name)) for name in validation.tables] == [3, 1]
    assert (validation.summary("one").n, validation.summary("one").n_skipped) == (2, 1)
    assert (validation.memory_summary("one").n, validation.memory_summary("one").n_skipped) == (
        1,
        2,
    )
    assert (validation.summary("two").n, validation.summary("two").n_skipped) == (0, 1)
    document = validation.to_json()
    assert set(document["summary"]) == set(document["memory_summary"]) == {"one", "two"}
    assert len(document["rows"]) == 4


def test_tables_of_one_name_are_told_apart(tmp_path: Path, row: MakeRow) -> None:
    first, second = (write(tmp_path / name / "t.csv", row()) for name in ("a", "b"))
    assert validate([first, second]).tables == (str(first), str(second))
    assert validate([first, first]).tables == ("t",)


def test_columns_that_are_not_read_are_told(tmp_path: Path, row: MakeRow) -> None:
    slips = {"zero_stge": "1", **{f"x{number}": "" for number in range(6)}}
    (result,) = validate([write(tmp_path / "t.csv", row() | slips)]).rows
    assert not result.skipped
    assert result.notes[-1] == (
        "table t: unknown columns, which are not read: zero_stge (did you mean 'zero_stage'?), "
        "x0, x1, x2, x3 and 2 more"
    )
    (clean,) = validate([write(tmp_path / "u.csv", row())]).rows
    assert result.notes[:-1] == clean.notes


def test_every_column_of_the_public_tables_is_read() -> None:
    for path in (*all_step_tables(), *blind_tables()):
        assert not _unread(path.stem, read_table(path)[0]), path


def test_the_public_tables_are_shipped() -> None:
    names = [path.stem for path in shipped_tables()]
    assert len(names) == 46
    assert names == sorted(names)
    assert Validation(rows=()).tables == ()


def test_mixtures_of_experts_are_summed_up_apart() -> None:
    def row(practice: str, predicted: float) -> ValidatedRow:
        return ValidatedRow(
            table="t", row_id="r", practice=practice, predicted_step=predicted, measured_step=1.0
        )

    rows = (row("x", 1.1), row("x, experts", 0.5), row("x, experts", 0.7))
    validation = Validation(rows=rows).by_kind("t")
    assert list(validation) == ["t, dense", "t, mixtures of experts"]
    assert [entry.n for entry in validation.values()] == [1, 2]
    assert [entry.bias for entry in validation.values()] == pytest.approx([0.1, -0.4])
    assert Validation(rows=rows[:1]).by_kind("t") == {}
