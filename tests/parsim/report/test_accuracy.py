"""`reports/accuracy.md`: every table, every predicted row, every reason with its count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.report.accuracy import accuracy_report
from parsim.validation.assumptions import explain
from parsim.validation.compare import Comparison, Validation

DONE = Comparison(
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
SKIPPED = Comparison(table="one", row_id="one-0008", reason="cp=2 is not yet simulated")
ROWS = (
    DONE,
    replace(DONE, row_id="one-0009", predicted_step=0.95, measured_peak=None, stack="nemo"),
    SKIPPED,
    replace(SKIPPED, row_id="one-0010"),
    replace(SKIPPED, row_id="one-0011", reason="tp is not stated"),
    replace(SKIPPED, table="two", row_id="two-0001"),
    replace(DONE, table="three", row_id="run-7", model="a|b\nc", measured_step=None),
)  # fmt: skip


@pytest.fixture
def lines() -> list[str]:
    return accuracy_report(Validation(rows=ROWS), command="parsim validate x.csv").splitlines()


def section(lines: list[str], title: str) -> list[str]:
    """Lines below a heading, up to the next."""
    start = lines.index(f"## {title}") + 1
    rest = [i for i in range(start, len(lines)) if lines[i].startswith("## ")]
    return [line for line in lines[start : min(rest, default=len(lines))] if line]


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
