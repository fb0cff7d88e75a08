"""Predicted steps beside measured ones, as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.tables import table
from parsim.units import format_seconds, percent
from parsim.validation.coverage import Summary
from parsim.validation.ranking import Ranking
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow


def validation_view(validation: Validation, *, rows: bool) -> RenderableType:
    """Per-row signed errors (if asked) and one summary line per table."""
    steps: dict[str, Summary] = {}
    for name in validation.tables:
        steps |= {name: validation.summary(name)} | validation.by_kind(name)
    memory = {name: validation.memory_summary(name) for name in validation.tables}
    memory = {name: summary for name, summary in memory.items() if summary.n}
    parts: list[RenderableType] = _row_parts(validation) if rows else []
    speedups = {name: validation.speedup_summary(name) for name in validation.tables}
    speedups = {name: summary for name, summary in speedups.items() if summary.n}
    steps = {name: each for name, each in steps.items() if each.n or name not in speedups}
    if steps:
        parts.append(_summary_table("step time, (predicted - measured) / measured", steps))
    if speedups:
        parts += [Text(""), _summary_table("speed-up over another run", speedups)]
    if memory:
        parts += [Text(""), _summary_table("peak memory", memory)]
    if validation.rankings:
        parts += [Text(""), _ranking_table(validation.rankings)]
    if any(validation.coverage(name).n for name in validation.tables):
        parts += [Text(""), _coverage_table(validation)]
    return Group(*parts)


def filled_lines(validation: Validation) -> list[str]:
    """Sizes that rows leave blank and what filled them, a line for each model and filling."""
    counts = Counter((row.model, row.filled) for row in validation.rows if row.filled)
    return [
        f"{model}, {count} rows, blank sizes: {', '.join(filled)}"
        for (model, filled), count in counts.items()
    ]


def _row_parts(validation: Validation) -> list[RenderableType]:
    """Each table's rows, and those with a measured bubble once more."""
    parts: list[RenderableType] = []
    for name in validation.tables:
        rows = validation.of(name)
        parts += [_rows_table(name, rows), Text("")]
        speedups = [row for row in rows if row.states_speedup and not row.skipped]
        parts += [_speedup_table(name, speedups), Text("")] if speedups else []
        bubbles = [row for row in rows if row.measured_bubble is not None]
        parts += [_bubble_table(name, bubbles), Text("")] if bubbles else []
    return parts


def _coverage_table(validation: Validation) -> Table:
    columns = "table | n | inside | half width | median error"
    filled = table(columns, right=range(1, 5), title="80 % intervals of step time")
    for name in (*validation.tables, None):
        coverage = validation.coverage(name)
        if coverage.n:
            shares = (coverage.covered, coverage.half_width, coverage.error)
            filled.add_row(name or "all", str(coverage.n), *(percent(share) for share in shares))
    return filled


def _rows_table(name: str, rows: Sequence[ValidatedRow]) -> Table:
    columns = "row | model | plan | predicted | measured | error | memory error"
    filled = table(columns, title=name, right=(3, 4, 5, 6))
    for row in rows:
        if row.skipped:
            filled.add_row(row.row_id, "skipped", row.reason)
            continue
        filled.add_row(
            row.row_id,
            row.model,
            row.plan,
            format_seconds(row.predicted_step or 0.0),
            format_seconds(row.measured_step) if row.measured_step else "-",
            percent(row.error, signed=True),
            percent(row.memory_error, signed=True),
        )
    return filled


def _speedup_table(name: str, rows: Sequence[ValidatedRow]) -> Table:
    columns = "row | model | plan | predicted | measured | error"
    filled = table(columns, title=f"{name}: speed-up over another run", right=(3, 4, 5))
    for row in rows:
        times = (f"{value:.2f}" for value in (row.predicted_speedup or 0.0, row.measured_speedup))
        filled.add_row(
            row.row_id, row.model, row.plan, *times, percent(row.speedup_error, signed=True)
        )
    return filled


def _bubble_table(name: str, rows: Sequence[ValidatedRow]) -> Table:
    columns = "row | plan | by parsim's times | by the row's | measured"
    filled = table(columns, title=f"{name}: bubble over a rank's span", right=(2, 3, 4))
    for row in rows:
        shares = (row.predicted_bubble, row.bubble_from_profile, row.measured_bubble)
        cells = (percent(share, digits=2) for share in shares)
        filled.add_row(row.row_id, row.plan, *cells)
    return filled


def _summary_table(title: str, summaries: Mapping[str, Summary]) -> Table:
    columns = "table | n | skipped | mean | median | p90 | max | bias"
    filled = table(columns, title=title, right=range(1, 8))
    for name, summary in summaries.items():
        counts = (str(summary.n), str(summary.n_skipped))
        filled.add_row(name, *counts, *error_cells(summary))
    return filled


def error_cells(summary: Summary) -> list[str]:
    """Mean, median, 90th percentile and largest |error|, and the bias, as text."""
    sizes = (
        summary.mean_abs_error,
        summary.median_abs_error,
        summary.p90_abs_error,
        summary.max_abs_error,
    )
    return [*(percent(size) for size in sizes), percent(summary.bias, signed=True)]


RANKING = (
    *("table", "groups", "Spearman median", "mean", "min"),
    *("regret@1 median", "mean", "max", "regret@3 median", "mean", "max"),
)
"""Columns of how well plans are chosen."""


def _ranking_table(rankings: Mapping[str, Ranking]) -> Table:
    title = "choice among plans of one model, batch and device count (regret: slower than the best)"
    filled = table(" | ".join(RANKING), title=title, right=range(1, len(RANKING)))
    for name, ranking in rankings.items():
        filled.add_row(name, str(ranking.groups), *ranking_cells(ranking))
    return filled


def ranking_cells(ranking: Ranking) -> list[str]:
    """Spearman median, mean and least, regret@1 and regret@3 median, mean and largest, as text."""
    agreements = (ranking.spearman_median, ranking.spearman_mean, ranking.spearman_min)
    regrets = (
        ranking.regret_at_1_median,
        ranking.regret_at_1_mean,
        ranking.regret_at_1_max,
        ranking.regret_at_3_median,
        ranking.regret_at_3_mean,
        ranking.regret_at_3_max,
    )
    words = ["-" if agreement is None else f"{agreement:.3f}" for agreement in agreements]
    return [*words, *(percent(regret) for regret in regrets)]
