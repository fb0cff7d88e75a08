"""`reports/ablation.md`: what each effect is worth, and sources left out of the fit (minutes).

python -m parsim.fitting.reports.ablation reports/ablation.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from parsim.fitting.constants.ablation import Ablated, ablate
from parsim.fitting.constants.address import Address
from parsim.fitting.constants.effects import ALL
from parsim.fitting.constants.families import Family, families
from parsim.fitting.constants.fit import fit
from parsim.fitting.constants.leave_out import LeftOut, leave_out
from parsim.fitting.constants.source_cases import load
from parsim.fitting.intervals.figures import residuals_of
from parsim.fitting.intervals.leave_out import refitted
from parsim.fitting.reports.fit import told_summary
from parsim.report.markdown import markdown_table
from parsim.report.writing import check_writable, write_text
from parsim.sim.confidence.known_errors import errors_of
from parsim.units import percent
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import validate

HEAD = """# Ablation, and sources left out

Written by `make ablation`; do not edit.

## Effects switched off

Mean |error| of all rows of a source, percent: with the full model and without one effect, the
catalog's constants unchanged; below it the bias. A small change does not mean that an effect is
small: others may hide it, and refitted constants would absorb most of what is missing. A lower
error without an effect means that the constants make up for something else with it."""

LEFT_OUT = """## One source left out of the fit

Each family is fitted again from its textbook values to its other sources (the rows that the fit
may use, see [fit.md](fit.md)), and predicts all rows of the one left out. Constants that only this
source identifies (its software's) then stay near their textbook values. Percent: mean |error| /
median / largest / bias. `inside` and `half width` are of 80 % intervals whose figures have not seen
the source either."""


def ablation_lines(ablated: list[Ablated]) -> Iterator[str]:
    """Sources down, effects across; then what each switch means."""
    names = [effect.name for effect in ALL]
    columns = ("source", "n", "full model", *names)
    yield from markdown_table(columns, _without_each(ablated, names))
    yield ""
    yield "What each switch means:"
    yield ""
    yield from (f"- {effect.name}: {effect.meaning}." for effect in ALL)


def _without_each(ablated: list[Ablated], names: list[str]) -> Iterator[list[object]]:
    """Two rows a source: mean errors and biases of the full model and without each effect."""
    for source in ablated:
        rows = (source.full, *(source.without[name] for name in names))
        errors = [percent(row.mean_abs_error).removesuffix(" %") for row in rows]
        biases = [percent(row.bias, signed=True).removesuffix(" %") for row in rows]
        yield [source.source, source.full.n, *errors]
        yield ["... bias", "", *biases]


def leave_out_lines(left_out: list[LeftOut], alone: list[str]) -> Iterator[str]:
    """One line a source; families with one source alone are named."""
    yield from markdown_table(
        "family | source | n | textbook, nothing fitted | all sources fitted | left out "
        "| inside | half width",
        map(_leave_out_cells, left_out),
        words=(0, 1),
    )
    if alone:
        yield ""
        yield f"Only one source has rows in the fit, so none can be left out: {', '.join(alone)}."


def _leave_out_cells(source: LeftOut) -> list[object]:
    summaries = (source.textbook, source.fitted, source.left_out)
    of = source.intervals
    shares = (of.covered, of.half_width) if of else (None, None)
    head = (source.family, source.source, source.fitted.n)
    return [*head, *map(told_summary, summaries), *map(percent, shares)]


def _all_left_out(chosen: tuple[Family, ...]) -> tuple[list[LeftOut], list[str]]:
    judge = refitted(residuals_of(validate(shipped_tables())), errors_of())
    known: dict[Address, float] = {}
    left_out: list[LeftOut] = []
    alone = []
    for family in chosen:
        sources = load(family)
        whole = fit(family, sources, known)
        lines = leave_out(family, sources, whole, known, lambda message: _tell(message), judge)
        left_out += lines
        alone += [] if lines else [family.name]
        known |= whole.values
    return left_out, alone


def _tell(message: str) -> None:
    sys.stderr.write(message + "\n")


def main(report: Path) -> None:
    """Ablate, leave out, write."""
    check_writable(report)
    parts = [HEAD, "\n".join(ablation_lines(ablate())), LEFT_OUT]
    parts.append("\n".join(leave_out_lines(*_all_left_out(families()))))
    write_text(report, "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
