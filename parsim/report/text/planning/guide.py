"""The families of parallel training side by side, and the recommendation, as text."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.guide.record import OTHERWISE, FamilyRow, Guide
from parsim.plan.strategies import DDP
from parsim.report.text.tables import table
from parsim.units import format_bytes, percent

SEARCHED = (
    "each family has the plan that one tries first; parsim search finds the best of all degrees, "
    "schedules and ZeRO stages"
)
"""What a guide does not look at, and what does."""
_COLUMNS = "family | samples/s | speed-up | efficiency | peak memory | fit"


def guide_view(guide: Guide) -> RenderableType:
    """One row a family, the recommended one marked, each one's plan and limit, and the reasons."""
    rows = table(_COLUMNS, right=(1, 2, 3, 4))
    plans = table("family | plan | limited by")
    for row in guide.rows:
        style = "bold" if row is guide.chosen else None
        rows.add_row(_name(row), *_figures(row), style=style)
        plans.add_row(_name(row), *_words(row), style=style)
    reasons = [Text(f"- {reason}") for reason in guide.reasons]
    return Group(
        rows,
        Text(""),
        plans,
        Text(""),
        Text(f"recommended for {guide.headline}", style="bold"),
        *reasons,
        Text(""),
        Text(OTHERWISE, style="dim"),
        Text(SEARCHED, style="dim"),
    )


def _name(row: FamilyRow) -> str:
    return row.name if row.same_training else f"{row.name} *"


def _figures(row: FamilyRow) -> tuple[str, ...]:
    """What a family reaches and needs; nothing of one that has no plan."""
    prediction = row.prediction
    if prediction is None:
        return ("", "", "", "", "no plan")
    return (
        row.rate,
        "" if row.speed_up is None else f"{row.speed_up:.2f}",
        percent(row.efficiency),
        format_bytes(prediction.fullest.peak_allocated),
        str(prediction.fit),
    )


def _words(row: FamilyRow) -> tuple[str, str]:
    """A family's plan, and what limits it or why it has none."""
    if row.prediction is None:
        return ("", row.reason)
    return (replace(row.prediction.plan, strategy=DDP).label(), row.limits)
