"""`reports/accuracy.md`: how far predictions are from measured rows, every way it can be cut.

Summaries are over all rows; of each table the ten worst rows are shown, and every row stands in
the CSV beside the report (`files.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from statistics import mean, median

from parsim.cost.job import EXPERTS
from parsim.report.accuracy.choices import choice_lines
from parsim.report.accuracy.fits import unfit_lines
from parsim.report.text.measured.steps import error_cells
from parsim.report.text.tables import percent
from parsim.validation.coverage import Coverage, LeftOut
from parsim.validation.fitted_rows import cells, is_fitted
from parsim.validation.step.assumptions import explain
from parsim.validation.summary import Summary
from parsim.validation.validate import Validation, step_errors
from parsim.validation.validated_row import ValidatedRow

WORST = 10
"""Rows shown of each table."""

_SEEN = (
    "these very rows; `left out` judges each table's rows by constants and figures that have not",
    "seen the table.",
)
"""Whose errors the intervals rest on; somebody's own rows are not among them."""


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
    for stack in validation.stacks:
        yield from explain(stack)
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
        yield "What nobody has measured", _unseen_lines(left_out)
    yield "Step time", summary_lines(validation, memory=False)
    yield "Rows that the fit used, and the others", _fit_lines(validation)
    yield "Step time by stack, device and precision", _grouped(validation, _setting)
    yield "Step time by GPU type, all sources", _grouped(validation, _chip)
    yield "Configuration cells", _cell_lines(validation)
    yield "Choice of plans", choice_lines(validation)
    yield "80 % intervals", _interval_lines(validation, left_out)
    yield "Speed-ups over another run", _speedup_lines(validation)
    yield "Peak memory", summary_lines(validation, memory=True)
    yield "Runs that ran, and whether they are predicted to fit", unfit_lines(validation)


def summary_lines(validation: Validation, *, memory: bool) -> Iterator[str]:
    """A Markdown table with one line per table that has a measured value."""
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
        yield f"Every row skipped, with reasons in reports/accuracy.md: {', '.join(empty)}."


def _speedup_lines(validation: Validation) -> Iterator[str]:
    """The tables that state speed-ups, and every row of them."""
    every = {name: validation.speedup_summary(name) for name in validation.tables}
    listed = {name: summary for name, summary in every.items() if summary.n}
    if not listed:
        return
    yield from _summary(listed)
    yield from ("", "| row | model | predicted | measured | error |", "|---|---|--:|--:|--:|")
    for row in validation.rows:
        if row.speedup_error is not None:
            yield (
                f"| {row.row_id} | {row.model} | {row.predicted_speedup:.2f} | "
                f"{row.measured_speedup:.2f} | {percent(row.speedup_error, signed=True)} |"
            )


def _summary(tables: dict[str, Summary]) -> Iterator[str]:
    yield "| table | n | skipped | mean | median | p90 | max | bias |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for name, summary in tables.items():
        yield f"| {name} | {summary.n} | {summary.n_skipped} | {' | '.join(error_cells(summary))} |"


def _fit_lines(validation: Validation) -> Iterator[str]:
    """Each table with rows in a fit, these rows and the others apart."""
    tables = {name: validation.of(name) for name in validation.tables}
    chosen = {name: rows for name, rows in tables.items() if any(map(is_fitted, rows))}
    if not chosen:
        return
    yield "The constants have seen the rows marked `fit` in the CSV; `test` rows they have not."
    yield ""
    yield "| table | rows | n | mean | median | p90 | max | bias |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    every = tuple(row for row in validation.rows if row.table in chosen)
    for name, rows in (*chosen.items(), ("all of these", every)):
        for use, wanted in (("fit", True), ("test", False)):
            summary = step_errors([row for row in rows if is_fitted(row) is wanted])
            yield f"| {name} | {use} | {summary.n} | {' | '.join(error_cells(summary))} |"


def _setting(row: ValidatedRow) -> str:
    kind = " with experts" if row.practice.endswith(EXPERTS) else ""
    return f"{row.stack or '-'}{kind}, {row.device or '-'}, {row.precision or 'not stated'}"


def _chip(row: ValidatedRow) -> str:
    return row.device.split("-")[0] or "not stated"


def _grouped(validation: Validation, key: Callable[[ValidatedRow], str]) -> Iterator[str]:
    """All rows by a key, predicted or skipped, with the commonest reason of the skipped ones."""
    groups: dict[str, list[ValidatedRow]] = {}
    for row in validation.rows:
        groups.setdefault(key(row), []).append(row)
    yield "| group | n | skipped | mean | median | p90 | max | bias | skipped most for |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|"
    for name, rows in sorted(groups.items()):
        summary = step_errors(rows)
        reasons = Counter(row.reason for row in rows if row.skipped).most_common(1)
        why = "".join(f"{count} x {_cell(reason)}" for reason, count in reasons)
        cells = [_cell(name), summary.n, summary.n_skipped, *error_cells(summary), why]
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _cell_lines(validation: Validation) -> Iterator[str]:
    """Tables whose rows repeat few configurations: each cell counts once."""
    known = cells()
    for name in validation.tables:
        groups: dict[str, list[float]] = {}
        for row in validation.of(name):
            if row.error is not None and (name, row.row_id) in known:
                groups.setdefault(known[name, row.row_id], []).append(row.error)
        if groups:
            yield from _cells_of(name, groups)


def _cells_of(name: str, groups: dict[str, list[float]]) -> Iterator[str]:
    means = {cell: mean(abs(error) for error in errors) for cell, errors in groups.items()}
    sizes = sorted(means.values())
    yield (
        f"{name}: {len(sizes)} cells, mean over cells {percent(mean(sizes))}, median "
        f"{percent(median(sizes))}, largest {percent(sizes[-1])}."
    )
    yield ""
    yield "| cell | n | mean | bias |"
    yield "|---|--:|--:|--:|"
    for cell, errors in sorted(groups.items()):
        bias = percent(mean(errors), signed=True)
        yield f"| {cell} | {len(errors)} | {percent(means[cell])} | {bias} |"


def _unseen_lines(left_out: LeftOut) -> Iterator[str]:
    """How predictions hold where a question is new."""
    yield "A question is new where no run has its model, its device, its release, its kind of"
    yield "plan or its scale. Of each level, every group of runs (one model's, one device's, ...)"
    yield "is left out once: constants and interval figures are those without it. `source` leaves a"
    yield "whole table out, with all that only it knows. `inside` is by factors of the level that"
    yield "have not seen the run's table either; `all tables` by the shipped ones, which have."
    yield "`median, cells` counts a table's runs of one model, tensor-parallel degree and"
    yield "micro-batch once, by their mean error: most runs are one table's repeats of few cells."
    yield "Formulas were chosen by people who saw these rows, which leaving out does not undo: a"
    yield "table that nobody has looked at stays blind (docs/accuracy.md)."
    yield ""
    yield from level_table(left_out)


def level_table(left_out: LeftOut) -> Iterator[str]:
    """One line for each way in which a question can be new."""
    yield (
        "| new is the | left out | runs | inside the 80 % interval | all tables | half width "
        "| median error | half width / error | mean error | bias | cells | median, cells |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for level in left_out.levels:
        inside, ratio = level.coverage, level.coverage.ratio
        cells = [
            f"{level.level} ({level.about})",
            str(level.groups),
            str(inside.n),
            *(percent(x) for x in (inside.covered, level.seen, inside.half_width, inside.error)),
            "-" if ratio is None else f"{ratio:.1f}",
            percent(level.mean),
            percent(level.bias, signed=True),
            str(level.cells),
            percent(level.cell_error),
        ]
        yield f"| {' | '.join(cells)} |"


def _interval_lines(validation: Validation, left_out: LeftOut | None) -> Iterator[str]:
    """Coverage and width of the intervals, per table and over all rows."""
    yield "Half width: half of the interval over the prediction, median. A normal error and 80 %"
    yield "would give a half width of 1.9 median errors. The figures behind the intervals come from"
    yield from _SEEN if left_out else ("the shipped tables, not from these rows.",)
    yield ""
    yield from interval_table(validation, left_out)


def interval_table(validation: Validation, left_out: LeftOut | None) -> Iterator[str]:
    """One line for each table that has an interval and a measurement, and one for all."""
    yield (
        "| table | of | n | inside | half width | median error | half width / error "
        "| left out: inside | half width |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for what, of in (
        ("step time", validation.coverage),
        ("peak memory", validation.memory_coverage),
    ):
        apart = left_out.tables if left_out and what == "step time" else {}
        for name in (*validation.tables, None):
            coverage = of(name)
            if coverage.n:
                yield f"| {name or 'all'} | {what} | {_covered(coverage, apart.get(name))} |"


def _covered(coverage: Coverage, left_out: Coverage | None) -> str:
    """Cells of a line: by all figures, and by those without the table's own rows."""
    ratio = "-" if coverage.ratio is None else f"{coverage.ratio:.1f}"
    shares = (coverage.covered, coverage.half_width, coverage.error)
    cells = [str(coverage.n), *(percent(share) for share in shares), ratio]
    other = (left_out.covered, left_out.half_width) if left_out else (None, None)
    return " | ".join([*cells, *(percent(x) for x in other)])


def _table(rows: tuple[ValidatedRow, ...]) -> Iterator[str]:
    done = sorted((row for row in rows if not row.skipped), key=_badness, reverse=True)
    if done:
        if len(done) > WORST:
            yield f"The {WORST} worst of {len(done)} rows."
            yield ""
        yield "| row | model | plan | predicted s | measured s | error | memory error |"
        yield "|---|---|---|--:|--:|--:|--:|"
    for row in done[:WORST]:
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


def _badness(row: ValidatedRow) -> tuple[bool, float]:
    """Rows with a step time first, by the size of its error; then by that of the memory error."""
    if row.error is not None:
        return True, abs(row.error)
    return False, abs(row.memory_error or 0.0)


def _cell(text: str) -> str:
    """Text of a user's table as one cell: no bar ends it, no line end breaks it."""
    return " ".join(text.split()).replace("|", "\\|")
