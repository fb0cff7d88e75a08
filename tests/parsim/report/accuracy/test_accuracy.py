"""`reports/accuracy.md`: every table, every cut of the errors, every reason with its count."""

from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection

from parsim.errors import InputError
from parsim.report.accuracy.accuracy import accuracy_report, summary_lines
from parsim.report.accuracy.files import accuracy_rows, check_report, write_accuracy
from parsim.report.picture.scatter import draw_scatter
from parsim.validation.coverage import Coverage, LeftOut, LevelCoverage
from parsim.validation.step.assumptions import explain
from parsim.validation.validate import Validation, read_table
from parsim.validation.validated_row import ValidatedRow
from tests.parsim.validation.conftest import shipped

DONE = ValidatedRow(
    table="one",
    row_id="one-0007",
    model="GPT 1.7B",
    stack="megatron-2021",
    plan="tp1 pp1",
    predicted_step=1.1,
    measured_step=1.0,
    predicted_peak=9.0,
    measured_peak=10.0,
)
SKIPPED = ValidatedRow(table="one", row_id="one-0008", reason="cp=2 is not yet simulated")
ROWS = (
    DONE,
    replace(DONE, row_id="one-0009", predicted_step=0.95, measured_peak=None, stack="nemo"),
    SKIPPED,
    replace(SKIPPED, row_id="one-0010"),
    replace(SKIPPED, row_id="one-0011", reason="tp is not stated"),
    replace(SKIPPED, table="two", row_id="two-0001"),
    replace(DONE, table="three", row_id="run-7", model="a|b\nc", measured_step=None),
)


@pytest.fixture
def lines() -> list[str]:
    return accuracy_report(Validation(rows=ROWS), command="parsim validate x.csv").splitlines()


def section(lines: list[str], title: str) -> list[str]:
    """Lines below a heading, up to the next."""
    start = lines.index(f"## {title}") + 1
    rest = [i for i in range(start, len(lines)) if lines[i].startswith("## ")]
    return [line for line in lines[start : min(rest, default=len(lines))] if line]


def test_reasons_are_in_the_report_itself(lines: list[str]) -> None:
    """Whatever file it is written to; the summary of all tables alone points elsewhere."""
    assert "Every row skipped, with reasons below: two, three." in lines
    assert not any("reports/accuracy.md" in line for line in lines)
    elsewhere = summary_lines(Validation(rows=ROWS), memory=False)
    assert "Every row skipped, with reasons in reports/accuracy.md: two, three." in list(elsewhere)


def test_how_to_repeat_it(lines: list[str]) -> None:
    assert lines[0] == "# Accuracy: predictions against published measurements"
    assert "`parsim validate x.csv`" in lines[2]


def test_step_times_of_every_table(lines: list[str]) -> None:
    told = section(lines, "Step time")
    assert told[2] == "| one | 2 | 3 | 7.5 % | 7.5 % | 10.0 % | 10.0 % | +2.5 % |"
    assert "two" in " ".join(told[3:])
    assert "three" in " ".join(told[3:])


def test_memory_where_it_was_measured(lines: list[str]) -> None:
    assert section(lines, "Peak memory")[2:] == [
        "| one | 1 | 4 | 10.0 % | 10.0 % | 10.0 % | 10.0 % | -10.0 % |",
        "| three | 1 | 0 | 10.0 % | 10.0 % | 10.0 % | 10.0 % | -10.0 % |",
    ]


def test_rows_with_their_signed_errors(lines: list[str]) -> None:
    told = section(lines, "one")
    assert told[:2] == [
        "| row | model | plan | predicted s | measured s | error | memory error |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    assert told[2:4] == [
        "| 0007 | GPT 1.7B | tp1 pp1 | 1.1 | 1 | +10.0 % | -10.0 % |",
        "| 0009 | GPT 1.7B | tp1 pp1 | 0.95 | 1 | -5.0 % | - |",
    ]


def test_reasons_with_their_counts(lines: list[str]) -> None:
    assert section(lines, "one")[4:] == [
        "Skipped: 2 x cp=2 is not yet simulated; 1 x tp is not stated"
    ]
    assert section(lines, "two") == ["Skipped: 1 x cp=2 is not yet simulated"]


def test_texts_of_a_user_stay_in_their_cells(lines: list[str]) -> None:
    assert section(lines, "three")[2:] == ["| run-7 | a\\|b c | tp1 pp1 | 1.1 | - | - | -10.0 % |"]


def test_assumptions_of_every_stack_once(lines: list[str]) -> None:
    told = section(lines, "Assumptions where the tables are silent")
    assert told == ["```", *explain("megatron-2021"), *explain("nemo"), "```"]


def test_the_file_ends_with_one_line_end() -> None:
    text = accuracy_report(Validation(rows=ROWS), command="x")
    assert text.endswith("```\n")
    assert not text.endswith("\n\n")


# --------------------------------------------------------------------------- cuts


def test_only_the_worst_rows_are_shown() -> None:
    rows = tuple(
        replace(DONE, row_id=f"one-{i:04}", predicted_step=1.0 + i / 100 * (-1) ** i)
        for i in range(1, 31)
    )
    text = accuracy_report(Validation(rows=rows), command="x")
    told = section(text.splitlines(), "one")
    assert told[0] == "The 10 worst of 30 rows."
    shown = [line.split(" | ")[0].removeprefix("| ") for line in told[3:]]
    assert shown == [f"{i:04}" for i in range(30, 20, -1)]
    assert told[3].endswith("| +30.0 % | -10.0 % |")
    assert told[4].endswith("| -29.0 % | -10.0 % |")


def test_groups_by_stack_device_and_precision() -> None:
    made = replace(DONE, device="a100-sxm-80gb", precision="bf16")
    skipped = replace(SKIPPED, stack="nemo", device="h100-sxm-80gb", precision="fp8")
    rows = (made, replace(made, predicted_step=0.8), replace(made, precision="fp16"), skipped)
    lines = accuracy_report(Validation(rows=rows), command="x").splitlines()
    assert section(lines, "Step time by stack, device and precision")[2:] == [
        "| megatron-2021, a100-sxm-80gb, bf16 | 2 | 0 | 15.0 % | 15.0 % | 20.0 % | 20.0 % "
        "| -5.0 % |  |",
        "| megatron-2021, a100-sxm-80gb, fp16 | 1 | 0 | 10.0 % | 10.0 % | 10.0 % | 10.0 % "
        "| +10.0 % |  |",
        "| nemo, h100-sxm-80gb, fp8 | 0 | 1 | - | - | - | - | - | 1 x cp=2 is not yet simulated |",
    ]
    by_chip = section(lines, "Step time by GPU type, all sources")[2:]
    assert [line.split(" | ")[:3] for line in by_chip] == [
        ["| a100", "3", "0"],
        ["| h100", "0", "1"],
    ]


def test_plans_are_ranked_where_there_are_groups(lines: list[str]) -> None:
    assert "## Choice of plans" not in lines
    job = replace(DONE, decision=("stack", "system", "a100", "bf16", "GPT", 20, 1024, 8, 64))
    rows = [
        replace(
            job, row_id=str(i), plan=f"tp{i}", predicted_step=float(i), measured_step=float(5 - i)
        )
        for i in range(1, 5)
    ]
    text = accuracy_report(Validation(rows=tuple(rows)), command="x").splitlines()
    told = section(text, "Choice of plans")
    cells = [*["-1.000"] * 3, *["300.0 %"] * 3, *["100.0 %"] * 3]
    assert f"| one | 1 | {' | '.join(cells)} |" in told
    first, fastest = "`tp1` 1.000 s, measured 4.000 s", "`tp4` 4.000 s, measured 1.000 s"
    assert told[-1] == f"| one | GPT | 8 | 64 | 4 | {first} | {fastest} | 300.0 % | no |"
    bare = Validation(rows=tuple(replace(row, decision=()) for row in rows))
    told = section(accuracy_report(bare, command="x").splitlines(), "Choice of plans")
    assert told[-1] == f"| one | - | - | - | 4 | {first} | {fastest} | 300.0 % | no |"


@pytest.fixture(scope="module")
def published() -> Validation:
    """All rows of a table of cells, predicted 10 % slow without simulating."""
    rows = []
    for cells in read_table(shipped("vtrain_single")):
        seconds = float(cells["step_time_s"])
        made = replace(DONE, table="vtrain_single_node_layers_12_20", row_id=cells["row_id"])
        rows.append(replace(made, measured_step=seconds, predicted_step=1.1 * seconds))
    return Validation(rows=tuple(rows))


def test_a_report_of_own_rows_claims_nothing_of_the_shipped_ones(published: Validation) -> None:
    report = accuracy_report(published, command="x")
    assert "](fit.md)" not in report
    assert "](ablation.md)" not in report
    assert "come from\nthe shipped tables, not from these rows." in report
    coverage = Coverage(n=1, covered=1.0, half_width=0.1, error=0.05)
    level = LevelCoverage(
        level="model",
        about="none of its kind",
        groups=3,
        mean=0.06,
        bias=-0.01,
        coverage=coverage,
        seen=0.9,
        cells=2,
        cell_error=0.04,
    )
    left_out = LeftOut(tables={None: coverage}, levels=(level,))
    shipped = accuracy_report(published, command="x", left_out=left_out)
    cells = "| 3 | 1 | 100.0 % | 90.0 % | 10.0 % | 5.0 % | 2.0 | 6.0 % | -1.0 % | 2 | 4.0 % |"
    assert f"| model (none of its kind) {cells}" in section(
        shipped.splitlines(), "What nobody has measured"
    )
    assert "[fit.md](fit.md)" in shipped
    assert "come from\nthese very rows; `left out` judges" in shipped


def test_rows_of_the_fit_are_told_apart(published: Validation) -> None:
    lines = accuracy_report(published, command="x").splitlines()
    fit, test, *_ = section(lines, "Rows that the fit used, and the others")[3:]
    counts = [int(line.split(" | ")[2]) for line in (fit, test)]
    assert sum(counts) == 720
    assert 0 < counts[0] < 100
    assert accuracy_rows(published).count(",fit,") == counts[0]


def test_a_table_of_the_same_name_with_other_times_is_not_of_the_fit(
    published: Validation,
) -> None:
    other = [replace(row, measured_step=2.0 * (row.measured_step or 0)) for row in published.rows]
    text = accuracy_report(Validation(rows=tuple(other)), command="x")
    assert "Rows that the fit used" not in text


def test_cells_count_once_each(published: Validation) -> None:
    told = section(accuracy_report(published, command="x").splitlines(), "Configuration cells")
    assert told[0] == (
        "vtrain_single_node_layers_12_20: 32 cells, mean over cells 10.0 %, median 10.0 %, "
        "largest 10.0 %."
    )
    counts = [int(line.split(" | ")[1]) for line in told[3:]]
    assert (len(counts), sum(counts)) == (32, 720)


@pytest.mark.parametrize(("longest", "told"), [(1.3, True), (200.0, False)])
def test_a_short_axis_has_numbers_between_powers_of_ten(longest: float, told: bool) -> None:
    rows = tuple(replace(DONE, measured_step=x, predicted_step=x) for x in (1.2, longest))
    figure = draw_scatter(Validation(rows=rows))
    figure.draw_without_rendering()
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis, figure.axes[1].xaxis):
        assert any(tick.get_text() for tick in axis.get_minorticklabels()) == told


# --------------------------------------------------------------------------- files


def test_every_row_is_in_the_csv() -> None:
    rows = list(csv.DictReader(StringIO(accuracy_rows(Validation(rows=ROWS)))))
    assert [(row["table"], row["row_id"]) for row in rows] == [(r.table, r.row_id) for r in ROWS]
    assert float(rows[0]["error"]) == pytest.approx(0.1)
    assert (rows[0]["status"], rows[0]["used"], rows[0]["notes"]) == ("ok", "test", "")
    skipped = rows[2]
    assert (skipped["status"], skipped["used"]) == ("skipped", "")
    assert skipped["notes"] == "cp=2 is not yet simulated"
    assert rows[-1]["model"] == "a|b\nc"


def test_the_report_links_what_is_written_beside_it(tmp_path: Path) -> None:
    write_accuracy(Validation(rows=ROWS), tmp_path / "mine.md", command="x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.csv", "mine.md", "mine.png"]
    text = (tmp_path / "mine.md").read_text("utf-8")
    assert "(mine.csv)" in text
    assert "(mine.png)" in text


def test_a_report_replaces_no_table(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    with pytest.raises(InputError, match="would replace the table"):
        check_report(tmp_path / "mine.md", [table])
    with pytest.raises(InputError, match=r"name it .*mine\.md"):
        check_report(table, [])
    check_report(tmp_path / "other.md", [table])
    assert list(tmp_path.iterdir()) == []


def test_the_picture_has_a_point_for_every_row_with_a_measured_time() -> None:
    figure = draw_scatter(Validation(rows=ROWS))
    both, errors = figure.axes
    for axes in (both, errors):
        (dots,) = [
            collection for collection in axes.collections if isinstance(collection, PathCollection)
        ]
        assert np.shape(dots.get_offsets()) == (2, 2)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["within ±10 %", "one (2)"]
    assert (both.get_xscale(), both.get_yscale(), errors.get_yscale()) == ("log", "log", "linear")


def test_a_picture_of_no_rows_is_empty() -> None:
    assert len(draw_scatter(Validation(rows=())).axes) == 2
