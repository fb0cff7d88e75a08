"""The families of parallel training side by side, and the recommendation, as text."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.guide.record import OTHERWISE, FamilyRow, Guide
from parsim.plan.strategies import DDP
from parsim.report.text.tables import table
from parsim.units import format_bytes, percent

_COLUMNS = "family | samples/s | speed-up | efficiency | peak memory | fit | limited by | plan"


def guide_view(guide: Guide) -> RenderableType:
    """One row a family, the recommended one marked, and the reasons."""
    rows = table(_COLUMNS, right=(1, 2, 3, 4))
    for row in guide.rows:
        rows.add_row(*_cells(row), style="bold" if row is guide.chosen else None)
    reasons = [Text(f"- {reason}") for reason in guide.reasons]
    return Group(
        rows,
        Text(""),
        Text(f"recommended: {guide.headline}", style="bold"),
        *reasons,
        Text(""),
        Text(OTHERWISE, style="dim"),
    )


def _cells(row: FamilyRow) -> tuple[str, ...]:
    name = row.name if row.same_training else f"{row.name} *"
    prediction = row.prediction
    if prediction is None:
        return (name, "", "", "", "", "", row.reason, "")
    return (
        name,
        f"{row.samples_per_second:,.1f}",
        "" if row.speed_up is None else f"{row.speed_up:.2f}",
        percent(row.efficiency),
        format_bytes(prediction.fullest.peak_allocated),
        str(prediction.fit),
        row.limits,
        replace(prediction.plan, strategy=DDP).label(),
    )
