"""`reports/accuracy.md`: every shipped measured row against its prediction, as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from parsim.report.text import percent
from parsim.validation.assumptions import explain
from parsim.validation.compare import Comparison, Summary, Validation


def accuracy_report(found: Validation, *, command: str) -> str:
    """The whole report; `command` repeats it."""
    return "\n".join(_lines(found, command)) + "\n"


def _lines(found: Validation, command: str) -> Iterator[str]:
    yield "# Accuracy: predictions against published measurements"
    yield ""
    yield f"Written by `{command}`; do not edit. Errors are (predicted - measured) / measured, over"
    yield "all rows that state what a prediction needs; skipped rows are counted by reason."
    yield "One set of constants per device, system and software stack (their sources stand beside"
    yield "them in `parsim/cluster/catalog/` and `parsim/cost/software.yaml`), none per row."
    yield ""
    yield "## Step time"
    yield ""
    yield from summary_lines(found, memory=False)
    yield ""
    yield "## Peak memory"
    yield ""
    yield from summary_lines(found, memory=True)
    for name in found.tables:
        yield ""
        yield f"## {name}"
        yield ""
        yield from _table(found.of(name))
    yield ""
    yield "## Assumptions where the tables are silent"
    yield ""
    yield "```"
    for stack in sorted({row.stack for row in found.rows if row.stack}):
        yield from explain(stack)
    yield "```"


def summary_lines(found: Validation, *, memory: bool) -> Iterator[str]:
    """A Markdown table with one line per table that has a measured value."""
    of = found.memory_summary if memory else found.summary
    yield from _summary({name: of(name) for name in found.tables if of(name).n})
    empty = [name for name in found.tables if not of(name).n]
    if empty and not memory:
        yield ""
        yield f"Every row skipped, with reasons in reports/accuracy.md: {', '.join(empty)}."


def _summary(tables: dict[str, Summary]) -> Iterator[str]:
    yield "| table | n | skipped | mean | median | p90 | max | bias |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for name, one in tables.items():
        cells = [percent(one.mean_abs_error), percent(one.median_abs_error),
                 percent(one.p90_abs_error), percent(one.max_abs_error),
                 percent(one.bias, signed=True)]  # fmt: skip
        yield f"| {name} | {one.n} | {one.n_skipped} | {' | '.join(cells)} |"


def _table(rows: tuple[Comparison, ...]) -> Iterator[str]:
    done = [row for row in rows if not row.skipped]
    if done:
        yield "| row | model | plan | predicted s | measured s | error | memory error |"
        yield "|---|---|---|--:|--:|--:|--:|"
    for row in done:
        measured = "-" if row.measured_step is None else f"{row.measured_step:.4g}"
        name = _cell(row.row_id.removeprefix(f"{row.table}-"))
        yield (
            f"| {name} | {_cell(row.model)} | {row.plan} "
            f"| {row.predicted_step:.4g} | {measured} | {percent(row.error, signed=True)} "
            f"| {percent(row.memory_error, signed=True)} |"
        )
    reasons = Counter(row.reason for row in rows if row.skipped)
    if reasons:
        yield ""
        yield "Skipped: " + "; ".join(f"{count} x {reason}" for reason, count in reasons.items())


def _cell(text: str) -> str:
    """Text of a user's table as one cell: no bar ends it, no line end breaks it."""
    return " ".join(text.split()).replace("|", "\\|")
