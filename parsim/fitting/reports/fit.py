"""`reports/fit.md`: what `make fit` found, and how well it does on rows it has and has not seen.

python -m parsim.fitting.reports.fit reports/fit.md [--family a100] [--write]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import date
from importlib.resources import files
from pathlib import Path

import numpy as np

from parsim.arrays import Array
from parsim.fitting.constants import solve
from parsim.fitting.constants.address import Address
from parsim.fitting.constants.families import Constant, Family, families
from parsim.fitting.constants.fit import Fitted, Rows, Values, fit, textbook
from parsim.fitting.constants.source_cases import SourceCases, load
from parsim.fitting.constants.write import write_values
from parsim.report.markdown import markdown_table
from parsim.report.writing import write_text
from parsim.units import percent
from parsim.validation.coverage import Summary, summarise

HEAD = """# Fit of the constants

Written by `make fit`; do not edit. `make fit WRITE=1` also writes the fitted column into the
catalog. Each family is fitted by damped Gauss-Newton to log(predicted / measured): a Huber loss
that counts errors beyond {huber:.0f} % linearly, each source counting the same, plus log-normal
priors at the textbook values. The fit sees a documented minority of each source's rows (the rules
are below; of deepspeed_public rows of the half set aside for fits); the other rows test it. Values
are rounded to three digits before they are judged."""


CASES = (
    "textbook, all rows",
    "catalog now, all rows",
    "fitted, rows in the fit",
    "fitted, other rows",
    "fitted, all rows",
)


def fit_section(family: Family, sources: list[SourceCases], fitted: Fitted, known: Values) -> str:
    """Markdown of one family: constants, then errors of every source."""
    return "\n".join(_lines(family, sources, fitted, known))


def _lines(
    family: Family, sources: list[SourceCases], fitted: Fitted, known: Values
) -> Iterator[str]:
    """The section of a family: its constants, and errors of every source."""
    yield f"## {family.name}"
    yield ""
    yield f"{family.about}. Objective {fitted.objective:.4g}."
    yield ""
    yield from markdown_table(
        "constant | textbook | spread | catalog now | fitted | why the textbook value",
        (_constant_cells(constant, fitted) for constant in family.constants),
        words=(0, 5),
    )
    yield ""
    yield "Step-time errors, percent: mean |error| / median / largest / bias."
    yield ""
    start, end = {**known, **textbook(family)}, {**known, **fitted.values}
    yield from markdown_table(
        ("source", "rows", "in the fit", *CASES),
        (_source_cells(source, start, end) for source in sources),
    )
    yield ""
    yield "Rows that the fit uses:"
    yield ""
    for source in sources:
        where = "".join(f", {column} = {cell}" for column, cell in source.source.where.items())
        yield f"- {source.source.name} ({source.source.table}{where}): {source.source.rule()}"


def _constant_cells(constant: Constant, fitted: Fitted) -> list[str]:
    now, new = constant.address.catalog_value(), fitted.values[constant.address]
    numbers = (f"{constant.textbook:.3g}", f"{100 * constant.spread:.0f} %")
    return [str(constant.address), *numbers, f"{now:.3g}", f"{new:.3g}", constant.why]


def _source_cells(source: SourceCases, start: Values, end: Values) -> list[object]:
    name = source.source.name
    if not source.cases:
        return [name, 0, 0, *("-" for _ in CASES)]
    rows, used = Rows(source.cases), np.array(source.used)
    first, now, last = (np.expm1(rows.errors(values)) for values in (start, {}, end))
    cells = [first, now, last[used], last[~used], last]
    return [name, len(last), used.sum(), *map(_told, cells)]


def _told(errors: Array) -> str:
    return told_summary(summarise([float(error) for error in errors], 0))


def told_summary(summary: Summary) -> str:
    """Mean |error|, median, largest and bias in one cell."""
    if not summary.n:
        return "-"
    parts = (summary.mean_abs_error, summary.median_abs_error, summary.max_abs_error)
    figures = [percent(part).removesuffix(" %") for part in parts]
    return " / ".join([*figures, percent(summary.bias, signed=True).removesuffix(" %")])


def fit_families(chosen: list[Family]) -> tuple[str, dict[Address, float]]:
    """Fit families one after another; the report and all values."""
    known: dict[Address, float] = {}
    sections = [HEAD.format(huber=100 * solve.HUBER)]
    for family in chosen:
        sources = load(family)
        fitted = fit(family, sources, known)
        sections.append(fit_section(family, sources, fitted, known))
        known |= fitted.values
        lines = "".join(f"  {address} {value:g}\n" for address, value in fitted.values.items())
        sys.stdout.write(f"{family.name}\n{lines}")
    return "\n\n".join(sections) + "\n", known


def main(arguments: list[str]) -> None:
    """Fit, report, and with --write change the catalog."""
    parser = argparse.ArgumentParser(prog="python -m parsim.fitting.reports.fit")
    parser.add_argument("report", type=Path)
    parser.add_argument("--family", action="append", help="default: all, in order")
    parser.add_argument("--write", action="store_true", help="write the values into the catalog")
    asked = parser.parse_args(arguments)
    chosen = [family for family in families() if not asked.family or family.name in asked.family]
    text, values = fit_families(chosen)
    write_text(asked.report, text)
    if asked.write:
        for path in write_values(values, date.today().isoformat(), Path(str(files("parsim")))):
            sys.stdout.write(f"changed {path}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
