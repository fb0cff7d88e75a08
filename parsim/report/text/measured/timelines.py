"""Comparisons as text: of two timelines by step, kinds and ranks, and of losses of several runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.comparison.compared import PREDICTED_MEASURED, Compared, TimelineComparison
from parsim.comparison.curves import CurveComparison
from parsim.report.text.tables import head_lines, table

_SCATTER = (("median", "median"), ("min", "min"), ("mad", "MAD"))

FEW_RANKS = 8
"""Most ranks that are printed; of more only that with the largest difference."""


def comparison_view(comparison: TimelineComparison) -> RenderableType:
    """Tables of both timelines, difference and error; times of the step with their spread.

    What is 0, or missing, on both sides is left out.
    """
    shown = [row for row in comparison.rows if row.predicted or row.measured]
    step = [row for row in shown if row.rank is None]
    kinds = [row for row in step if row.quantity.endswith("_mean_s")]
    return Group(
        _step_table(comparison, [row for row in step if row not in kinds]),
        Text(""),
        _kind_table(comparison, kinds),
        Text(""),
        _rank_table(comparison, [row for row in shown if row.rank is not None]),
        Text(""),
        Text(comparison.headline, style="bold red" if comparison.unlike else ""),
    )


def _columns(comparison: TimelineComparison) -> str:
    """Names of the four columns of numbers."""
    return " | ".join([*comparison.names, "difference", head_lines(comparison.judges)])


def _step_table(comparison: TimelineComparison, rows: Iterable[Compared]) -> Table:
    whose = "measurement" if comparison.names == PREDICTED_MEASURED else comparison.names[1]
    columns = f"whole step | {_columns(comparison)} | spread of the {whose}"
    filled = table(columns, right=range(1, 5))
    for row in rows:
        spread = comparison.spread.get(row.quantity, {})
        filled.add_row(row.quantity, *_numbers(row), _spread(row, spread))
    return filled


def _kind_table(comparison: TimelineComparison, rows: Iterable[Compared]) -> Table:
    filled = table(f"mean length | {_columns(comparison)}", right=range(1, 5))
    for row in rows:
        name = row.quantity.removesuffix("_mean_s")
        filled.add_row(name.replace("_exposed", ", exposed"), *_numbers(row))
    return filled


def _rank_table(comparison: TimelineComparison, rows: Iterable[Compared]) -> Table:
    filled = table(f"per rank | rank | {_columns(comparison)}", right=range(1, 6))
    by_quantity: dict[str, list[Compared]] = {}
    for row in rows:
        by_quantity.setdefault(row.quantity, []).append(row)
    for quantity, alike in by_quantity.items():
        for i, row in enumerate(_shown(alike)):
            filled.add_row("" if i else quantity, str(row.rank), *_numbers(row))
    if len(comparison.pairs) > FEW_RANKS:
        filled.caption = (
            f"of {len(comparison.pairs)} ranks the one with the largest difference; --json has all"
        )
        filled.caption_justify = "left"
    return filled


def _shown(rows: list[Compared]) -> list[Compared]:
    if len(rows) <= FEW_RANKS:
        return rows
    return [max(rows, key=lambda row: abs(row.difference or 0.0))]


def _numbers(row: Compared) -> Iterator[str]:
    yield row.text(row.predicted)
    yield row.text(row.measured)
    yield row.text(row.difference, signed=True)
    yield row.error_text


def _spread(row: Compared, spread: Mapping[str, float]) -> str:
    """Such as `median 1.234 s, min 1.200 s, MAD 0.012 s, n 20`."""
    words = [f"{text} {row.text(spread[name])}" for name, text in _SCATTER if name in spread]
    return ", ".join([*words, *([f"n {spread['n']:.0f}"] if "n" in spread else [])])


_COLUMNS = "run | workers | samples/s | last loss | seconds to {:.4f} | samples to it"


def curves_view(comparison: CurveComparison) -> RenderableType:
    """One row a run, and who was first."""
    rows = table(_COLUMNS.format(comparison.reached), right=range(1, 6))
    for curve in comparison.curves:
        seconds, samples = (
            curve.seconds_to(comparison.reached),
            curve.samples_to(comparison.reached),
        )
        rows.add_row(
            curve.name,
            str(curve.workers),
            "" if curve.rate is None else f"{curve.rate:,.1f}",
            f"{curve.loss[-1]:.4f}",
            "" if seconds is None else f"{seconds:,.2f}",
            "" if samples is None else f"{samples:,.0f}",
        )
    return Group(rows, Text(""), Text(comparison.headline))
