"""Losses of several runs as text: how fast each was, and when each came to what all reached."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.comparison.curves import CurveComparison
from parsim.report.text.tables import table

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
            f"{curve.rate:,.1f}",
            f"{curve.loss[-1]:.4f}",
            "" if seconds is None else f"{seconds:,.2f}",
            "" if samples is None else f"{samples:,.0f}",
        )
    return Group(rows, Text(""), Text(comparison.headline))
