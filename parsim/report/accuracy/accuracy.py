"""`reports/accuracy.md`: how far predictions are from measured rows, every way it can be cut.

Summaries are over all rows; of each table the ten worst rows are shown, and every row stands in
the CSV beside the report (`files.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from parsim.report.accuracy.fits import unfit_lines
from parsim.report.accuracy.groups import (
    cell_lines,
    chip_of,
    choice_lines,
    fit_lines,
    grouped,
    setting_of,
)
from parsim.report.accuracy.intervals import interval_lines, unseen_lines
from parsim.report.markdown import cell, markdown_table
from parsim.report.text.measured.steps import error_cells
from parsim.units import percent
from parsim.validation.coverage import LeftOut, Summary
from parsim.validation.step.assumptions import explain
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow

WORST = 10
"""Rows shown of each table."""


def accuracy_report(
    validation: Validation,
    *,
    command: str,
    beside: str = "accuracy",
    left_out: LeftOut | None = None,
) -> str:
    """The whole report; `command` repeats it, `beside` is the name of the CSV and the picture."""
    return "\n".join(_lines(validation, command, beside, left_out)) + "\n"


def _lines(
    validation: Validation, command: str, beside: str, left_out: LeftOut | None
) -> Iterator[str]:
    """The page: how it was made, all errors, and the sections that cut them."""
    yield "# Accuracy: predictions against published measurements"
    yield ""
    yield f"Written by `{command}`; do not edit. Errors are (predicted - measured) / measured, over"
    yield "all rows that state what a prediction needs; skipped rows are counted by reason."
    yield "One set of constants per device, system and software stack (their sources stand beside"
    yield "them in `parsim/cluster/catalog/` and `parsim/cost/software.yaml`), none per row."
    yield from _pointers(beside, shipped=left_out is not None)
    yield ""
    yield f"![predicted against measured step time]({beside}.png)"
    for title, body in _sections(validation, left_out):
        lines = list(body)
        if lines:
            yield from ("", f"## {title}", "", *lines)
    for name in validation.tables:
        yield from ("", f"## {name}", "", *_table(validation.of(name)))
    yield from ("", "## Assumptions where the tables are silent", "", "```")
    for stack, name in validation.stacks.items():
        yield from explain(stack, name)
    yield "```"


def _pointers(beside: str, *, shipped: bool) -> Iterator[str]:
    """Where more stands; a report of somebody's own tables has no pages of parsim's beside it."""
    rows = f"Every row: [{beside}.csv]({beside}.csv)."
    if not shipped:
        yield rows
        return
    yield f"{rows} What the constants were fitted to: `make fit`"
    yield "([fit.md](fit.md)). What each effect is worth, and sources left out of the fit:"
    yield "`make ablation` ([ablation.md](ablation.md))."


def _sections(
    validation: Validation, left_out: LeftOut | None
) -> Iterator[tuple[str, Iterator[str]]]:
    if left_out is not None:
        yield "What nobody has measured", unseen_lines(left_out)
    yield "Step time", summary_lines(validation, memory=False, reasons="below")
    yield "Rows that the fit used, and the others", fit_lines(validation)
    yield "Step time by stack, device and precision", grouped(validation, setting_of)
    yield "Step time by GPU type, all sources", grouped(validation, chip_of)
    yield "Configuration cells", cell_lines(validation)
    yield "Choice of plans", choice_lines(validation)
    yield "80 % intervals", interval_lines(validation, left_out)
    yield "Speed-ups over another run", _speedup_lines(validation)
    yield "Peak memory", summary_lines(validation, memory=True)
    yield "Runs that ran, and whether they are predicted to fit", unfit_lines(validation)


def summary_lines(
    validation: Validation, *, memory: bool, reasons: str = "in reports/accuracy.md"
) -> Iterator[str]:
    """A Markdown table with one line per table that has a measured value.

    `reasons` tells where a reader finds why tables have no row.
    """
    of = validation.memory_summary if memory else validation.summary
    listed: dict[str, Summary] = {}
    for name in validation.tables:
        if of(name).n:
            listed |= {name: of(name)} | ({} if memory else validation.by_kind(name))
    yield from _summary(listed)
    stated = [name for name in validation.tables if not validation.speedup_summary(name).n]
    empty = [name for name in stated if not of(name).n]
    if empty and not memory:
        yield ""
        yield f"Every row skipped, with reasons {reasons}: {', '.join(empty)}."


def _speedup_lines(validation: Validation) -> Iterator[str]:
    """The tables that state speed-ups, and every row of them."""
    every = {name: validation.speedup_summary(name) for name in validation.tables}
    listed = {name: summary for name, summary in every.items() if summary.n}
    if not listed:
        return
    yield from _summary(listed)
    yield ""
    yield from markdown_table(
        "row | model | predicted | measured | error",
        (_speedup_cells(row) for row in validation.rows if row.speedup_error is not None),
        words=(0, 1),
    )


def _speedup_cells(row: ValidatedRow) -> list[str]:
    gains = (row.predicted_speedup, row.measured_speedup)
    error = percent(row.speedup_error, signed=True)
    return [row.row_id, row.model, *(f"{gain:.2f}" for gain in gains), error]


def _summary(tables: dict[str, Summary]) -> Iterator[str]:
    yield from markdown_table(
        "table | n | skipped | mean | median | p90 | max | bias",
        ((name, of.n, of.n_skipped, *error_cells(of)) for name, of in tables.items()),
    )


def _row_cells(row: ValidatedRow) -> list[str]:
    return [
        cell(row.row_id.removeprefix(f"{row.table}-")),
        cell(row.model),
        row.plan,
        f"{row.predicted_step:.4g}",
        "-" if row.measured_step is None else f"{row.measured_step:.4g}",
        percent(row.error, signed=True),
        percent(row.memory_error, signed=True),
    ]


def _table(rows: tuple[ValidatedRow, ...]) -> Iterator[str]:
    done = sorted((row for row in rows if not row.skipped), key=_badness, reverse=True)
    if done:
        if len(done) > WORST:
            yield f"The {WORST} worst of {len(done)} rows."
            yield ""
        yield from markdown_table(
            "row | model | plan | predicted s | measured s | error | memory error",
            map(_row_cells, done[:WORST]),
            words=(0, 1, 2),
        )
    reasons = Counter(row.reason for row in rows if row.skipped)
    if reasons:
        yield ""
        yield "Skipped: " + "; ".join(f"{count} x {reason}" for reason, count in reasons.items())


def _badness(row: ValidatedRow) -> tuple[bool, float]:
    """Rows with a step time first, by the size of its error; then by that of the memory error."""
    if row.error is not None:
        return True, abs(row.error)
    return False, abs(row.memory_error or 0.0)
