"""The page of published trainings: every row, signed, and those that cannot be predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsim.report.accuracy.trainings import TABLE, page
from parsim.validation.tables import blind_tables
from parsim.validation.validate import Validation, validate
from parsim.validation.validated_row import ValidatedRow

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def validation(tmp_path_factory: pytest.TempPathFactory) -> Validation:
    """A run with hours, one with a step of its log, and one without degrees."""
    (path,) = [path for path in blind_tables() if path.stem == TABLE]
    header, *rows = path.read_text(encoding="utf-8").splitlines()
    names = ("pythia-70m,", "bloom-176b,", "llama-65b,")
    kept = [row for row in rows if row.startswith(names)]
    copy = tmp_path_factory.mktemp("blind") / path.name
    copy.write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    return validate([copy])


def test_a_line_for_each_run(validation: Validation) -> None:
    lines = list(page(validation))
    (pythia,) = [line for line in lines if line.startswith("| pythia-70m | 32 |")]
    row = validation.rows[0]
    assert row.predicted_step
    bloom = validation.rows[1].case
    assert bloom is not None
    assert bloom.job.software.blocking_launches
    assert bloom.plan.stage_layers == (5, *[6] * 10, 5)
    hours = row.predicted_step * 143_000 * 32 / 3600
    assert f"| {100 * (row.error or 0):+.1f} % | {_inside(row)} | {hours:,.0f} | 510 |" in pythia
    assert "- llama-65b: tp is not stated" in lines
    assert sum(line.startswith("Steps as printed: 1 runs") for line in lines) == 1


def _inside(row: ValidatedRow) -> str:
    assert row.step_interval is not None
    assert row.measured_step is not None
    low, high = row.step_interval
    return "yes" if low <= row.measured_step <= high else "no"


def test_the_page_lists_every_row_of_the_table() -> None:
    text = (ROOT / "reports" / "trainings.md").read_text(encoding="utf-8")
    (path,) = [path for path in blind_tables() if path.stem == TABLE]
    names = [line.partition(",")[0] for line in path.read_text("utf-8").splitlines()[1:]]
    assert [name for name in names if f"| {name} |" not in text and f"- {name}:" not in text] == []
