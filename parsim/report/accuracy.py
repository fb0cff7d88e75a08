"""`reports/accuracy.md`: how far predictions are from measured rows, every way it can be cut.

Summaries are over all rows; of each table the ten worst rows are shown, and every row stands in
the CSV beside the report (`accuracy_rows.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import mean, median

from parsim.cost.job import EXPERTS
from parsim.report.text import percent, ranking_cells
from parsim.validation.assumptions import explain
from parsim.validation.compare import Validation
from parsim.validation.comparison import Comparison
from parsim.validation.coverage import Coverage
from parsim.validation.fitting.rows import cells, is_fitted
from parsim.validation.summary import Summary, summarise

WORST = 10
"""Rows shown of each table."""
LeftOut = Mapping[str | None, Coverage]
"""Coverage of each table by figures without its rows, and of all (`interval_leave_out.py`)."""


def accuracy_report(
    found: Validation, *, command: str, beside: str = "accuracy", left_out: LeftOut | None = None
) -> str:
    """The whole report; `command` repeats it, `beside` is the name of the CSV and the picture."""
    return "\n".join(_lines(found, command, beside, left_out or {})) + "\n"


def _lines(found: Validation, command: str, beside: str, left_out: LeftOut) -> Iterator[str]:
    yield "# Accuracy: predictions against published measurements"
    yield ""
    yield f"Written by `{command}`; do not edit. Errors are (predicted - measured) / measured, over"
    yield "all rows that state what a prediction needs; skipped rows are counted by reason."
    yield "One set of constants per device, system and software stack (their sources stand beside"
    yield "them in `parsim/cluster/catalog/` and `parsim/cost/software.yaml`), none per row."
    yield from _pointers(beside, shipped=bool(left_out))
    yield ""
    yield f"![predicted against measured step time]({beside}.png)"
    for title, body in _sections(found, left_out):
        lines = list(body)
        if lines:
            yield from ("", f"## {title}", "", *lines)
    for name in found.tables:
        yield from ("", f"## {name}", "", *_table(found.of(name)))
    yield from ("", "## Assumptions where the tables are silent", "", "```")
    for stack in found.stacks:
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


def _sections(found: Validation, left_out: LeftOut) -> Iterator[tuple[str, Iterator[str]]]:
    yield "Step time", summary_lines(found, memory=False)
    yield "Rows that the fit used, and the others", _fit_lines(found)
    yield "Step time by stack, device and precision", _grouped(found, _setting)
    yield "Step time by GPU type, all sources", _grouped(found, _chip)
    yield "Configuration cells", _cell_lines(found)
    yield "Choice of plans", _ranking_lines(found)
    yield "80 % intervals", _interval_lines(found, left_out)
    yield "Peak memory", summary_lines(found, memory=True)


def summary_lines(found: Validation, *, memory: bool) -> Iterator[str]:
    """A Markdown table with one line per table that has a measured value."""
    of = found.memory_summary if memory else found.summary
    listed: dict[str, Summary] = {}
    for name in found.tables:
        if of(name).n:
            listed |= {name: of(name)} | ({} if memory else found.by_kind(name))
    yield from _summary(listed)
    empty = [name for name in found.tables if not of(name).n]
    if empty and not memory:
        yield ""
        yield f"Every row skipped, with reasons in reports/accuracy.md: {', '.join(empty)}."


def _summary(tables: dict[str, Summary]) -> Iterator[str]:
    yield "| table | n | skipped | mean | median | p90 | max | bias |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for name, one in tables.items():
        yield f"| {name} | {one.n} | {one.n_skipped} | {' | '.join(_cells(one))} |"


def _cells(one: Summary) -> list[str]:
    """Mean, median, 90th percentile, largest, bias."""
    sizes = (one.mean_abs_error, one.median_abs_error, one.p90_abs_error, one.max_abs_error)
    return [*(percent(size) for size in sizes), percent(one.bias, signed=True)]


def _fit_lines(found: Validation) -> Iterator[str]:
    """Each table with rows in a fit, these rows and the others apart."""
    chosen = [name for name in found.tables if any(is_fitted(row) for row in found.of(name))]
    if not chosen:
        return
    yield "The constants have seen the rows marked `fit` in the CSV; `test` rows they have not."
    yield ""
    yield "| table | rows | n | mean | median | p90 | max | bias |"
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    parts = [(name, found.of(name)) for name in chosen] + [("all of these", _rows(found, chosen))]
    for name, rows in parts:
        for said, wanted in (("fit", True), ("test", False)):
            one = _errors([row for row in rows if is_fitted(row) is wanted])
            yield f"| {name} | {said} | {one.n} | {' | '.join(_cells(one))} |"


def _rows(found: Validation, tables: list[str]) -> tuple[Comparison, ...]:
    return tuple(row for row in found.rows if row.table in tables)


def _errors(rows: list[Comparison]) -> Summary:
    errors = [row.error for row in rows if row.error is not None]
    return summarise(errors, len(rows) - len(errors))


def _setting(row: Comparison) -> str:
    kind = " with experts" if row.practice.endswith(EXPERTS) else ""
    return f"{row.stack or '-'}{kind}, {row.device or '-'}, {row.precision or 'not stated'}"


def _chip(row: Comparison) -> str:
    return row.device.split("-")[0] or "not stated"


def _grouped(found: Validation, key: Callable[[Comparison], str]) -> Iterator[str]:
    """All rows by a key, predicted or skipped, with the commonest reason of the skipped ones."""
    groups: dict[str, list[Comparison]] = {}
    for row in found.rows:
        groups.setdefault(key(row), []).append(row)
    yield "| group | n | skipped | mean | median | p90 | max | bias | skipped most for |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|---|"
    for name, rows in sorted(groups.items()):
        one = _errors(rows)
        reasons = Counter(row.reason for row in rows if row.skipped).most_common(1)
        why = "".join(f"{count} x {_cell(reason)}" for reason, count in reasons)
        cells = [_cell(name), one.n, one.n_skipped, *_cells(one), why]
        yield f"| {' | '.join(str(cell) for cell in cells)} |"


def _cell_lines(found: Validation) -> Iterator[str]:
    """Tables whose rows repeat few configurations: each cell counts once."""
    known = cells()
    for name in found.tables:
        groups: dict[str, list[float]] = {}
        for row in found.of(name):
            if row.error is not None and (name, row.row_id) in known:
                groups.setdefault(known[name, row.row_id], []).append(row.error)
        if groups:
            yield from _cells_of(name, groups)


def _cells_of(name: str, groups: dict[str, list[float]]) -> Iterator[str]:
    means = {cell: mean(abs(error) for error in errors) for cell, errors in groups.items()}
    sizes = sorted(means.values())
    yield (f"{name}: {len(sizes)} cells, mean over cells {percent(mean(sizes))}, median "
           f"{percent(median(sizes))}, largest {percent(sizes[-1])}.")  # fmt: skip
    yield ""
    yield "| cell | n | mean | bias |"
    yield "|---|--:|--:|--:|"
    for cell, errors in sorted(groups.items()):
        bias = percent(mean(errors), signed=True)
        yield f"| {cell} | {len(errors)} | {percent(means[cell])} | {bias} |"


def _ranking_lines(found: Validation) -> Iterator[str]:
    """Rank agreement within groups of plans for one model, batch and device count."""
    tables = {name: found.ranking(name) for name in found.tables}
    if not any(one.groups for one in tables.values()):
        return
    yield "Groups of at least four plans of the same model, number of devices and global batch on"
    yield "one system. Regret: how much slower the best of the first 1 or 3 plans is than the best"
    yield "of the group; ties of predictions count against them."
    yield ""
    yield "| table | groups | Spearman mean | min | regret@1 mean | max | regret@3 mean | max |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|"
    for name, one in tables.items():
        if one.groups:
            yield f"| {name} | {one.groups} | {' | '.join(ranking_cells(one))} |"


def _interval_lines(found: Validation, left_out: LeftOut) -> Iterator[str]:
    """Coverage and width of the intervals, per table and over all rows."""
    yield "Half width: half of the interval over the prediction, median. A normal error and 80 %"
    yield "would give a half width of 1.9 median errors. The figures behind the intervals come from"
    yield from _origin(shipped=bool(left_out))
    yield ""
    yield from interval_table(found, left_out)


def _origin(*, shipped: bool) -> Iterator[str]:
    """Whose errors the intervals rest on; somebody's own rows are not among them."""
    if not shipped:
        yield "the shipped tables, not from these rows."
        return
    yield "these very rows; `left out` judges each table's rows by figures from the other tables"
    yield "alone (the constants have seen them: [ablation.md](ablation.md) leaves them out there)."


def interval_table(found: Validation, left_out: LeftOut) -> Iterator[str]:
    """One line for each table that has an interval and a measurement, and one for all."""
    yield (
        "| table | of | n | inside | half width | median error | half width / error "
        "| left out: inside | half width |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|"
    for what, of in (("step time", found.coverage), ("peak memory", found.memory_coverage)):
        apart = left_out if what == "step time" else {}
        for name in (*found.tables, None):
            one = of(name)
            if one.n:
                yield f"| {name or 'all'} | {what} | {_covered(one, apart.get(name))} |"


def _covered(one: Coverage, left_out: Coverage | None) -> str:
    """Cells of a line: by all figures, and by those without the table's own rows."""
    ratio = "-" if one.ratio is None else f"{one.ratio:.1f}"
    cells = [str(one.n), *(percent(x) for x in (one.covered, one.half_width, one.error)), ratio]
    other = (left_out.covered, left_out.half_width) if left_out else (None, None)
    return " | ".join([*cells, *(percent(x) for x in other)])


def _table(rows: tuple[Comparison, ...]) -> Iterator[str]:
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


def _badness(row: Comparison) -> tuple[bool, float]:
    """Rows with a step time first, by the size of its error; then by that of the memory error."""
    if row.error is not None:
        return True, abs(row.error)
    return False, abs(row.memory_error or 0.0)


def _cell(text: str) -> str:
    """Text of a user's table as one cell: no bar ends it, no line end breaks it."""
    return " ".join(text.split()).replace("|", "\\|")
