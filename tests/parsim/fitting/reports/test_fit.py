"""`reports/fit.md` and `reports/ablation.md`: every constant, source, effect and rule is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parsim.fitting.constants.ablation import Ablated
from parsim.fitting.constants.address import Address
from parsim.fitting.constants.effects import ALL
from parsim.fitting.constants.families import Family, families
from parsim.fitting.constants.leave_out import LeftOut
from parsim.fitting.reports import fit as report
from parsim.fitting.reports.ablation import ablation_lines, leave_out_lines
from parsim.validation.coverage import coverage, summarise


@pytest.fixture(scope="module")
def family() -> Family:
    """The smallest family, with one of its constants."""
    (chosen,) = [family for family in families() if family.name == "b200"]
    return replace(chosen, constants=chosen.constants[:1])


@pytest.fixture(scope="module")
def told(family: Family) -> tuple[str, dict[Address, float]]:
    return report.fit_families([family])


def test_constants_and_sources_are_told(
    family: Family, told: tuple[str, dict[Address, float]]
) -> None:
    text, values = told
    constant = family.constants[0]
    line = next(row for row in text.splitlines() if row.startswith(f"| {constant.address} |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert [float(cell) for cell in (cells[1], cells[4])] == [
        constant.textbook,
        values[constant.address],
    ]
    assert float(cells[3]) == pytest.approx(constant.address.catalog_value(), rel=1e-2)
    for source in family.sources:
        assert f"\n| {source.name} | " in text
        assert f"\n- {source.name} ({source.table}" in text


def test_rows_of_the_fit_and_the_others_add_up(told: tuple[str, dict[Address, float]]) -> None:
    line = next(row for row in told[0].splitlines() if row.startswith("| SimuMax B200 |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    rows, used = int(cells[1]), int(cells[2])
    fit, others, both = (float(cell.split(" / ")[0]) for cell in cells[5:])
    assert both == pytest.approx((used * fit + (rows - used) * others) / rows, abs=0.11)


@pytest.mark.slow
def test_values_are_written_only_when_asked(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[object] = []

    def write(values: object, *_: object) -> list[Path]:
        written.append(values)
        return []

    monkeypatch.setattr(report, "families", lambda: (family,))
    monkeypatch.setattr(report, "write_values", write)
    report.main([str(tmp_path / "fit.md")])
    assert not written
    assert (tmp_path / "fit.md").read_text("utf-8").startswith("# Fit of the constants")
    report.main([str(tmp_path / "fit.md"), "--write"])
    assert len(written) == 1


def test_every_effect_has_a_column_and_a_meaning() -> None:
    full, worse = summarise([0.02, -0.04], 0), summarise([-0.3, -0.1], 0)
    first = Ablated(
        family="a100", source="SC21", full=full, without={effect.name: worse for effect in ALL}
    )
    lines = list(ablation_lines([first]))
    assert lines[2] == "| SC21 | 2 | 3.0 |" + " 20.0 |" * len(ALL)
    assert lines[3] == "| ... bias |  | -1.0 |" + " -20.0 |" * len(ALL)
    for effect in ALL:
        assert f" {effect.name} |" in lines[0]
        assert f"- {effect.name}: {effect.meaning}." in lines


def test_sources_left_out_have_three_sets_of_errors() -> None:
    first = LeftOut(
        family="a100",
        source="SC21",
        textbook=summarise([0.1], 0),
        fitted=summarise([0.01], 0),
        left_out=summarise([-0.02], 0),
    )
    lines = list(leave_out_lines([first], ["b200"]))
    assert lines[2] == (
        "| a100 | SC21 | 1 | 10.0 / 10.0 / 10.0 / +10.0 | 1.0 / 1.0 / 1.0 / +1.0 "
        "| 2.0 / 2.0 / 2.0 / -2.0 | - | - |"
    )
    inside = coverage([(1.0, 1.05, (0.9, 1.1)), (1.0, 1.2, (0.9, 1.1))])
    (_, _, line) = leave_out_lines([replace(first, intervals=inside)], [])
    assert line.endswith("| 50.0 % | 10.0 % |")
    assert lines[-1].endswith("none can be left out: b200.")
