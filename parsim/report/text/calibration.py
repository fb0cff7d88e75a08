"""What a calibration could not measure, and what recorded runs corrected, as text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.report.text.tables import table
from parsim.units import percent

WORTH = 0.005
"""A part of the predicted step from which on it has a line of its own."""


def gaps_view(document: dict[str, Any]) -> RenderableType:
    """What was not measured: what carries the plans' steps by name, the rest counted by reason."""
    gaps = document["unmeasured"]
    worth = [gap for gap in gaps if gap["share"] >= WORTH]
    parts: list[RenderableType] = []
    if worth:
        filled = table("not measured | share of the step | why", right=(1,))
        for gap in worth:
            filled.add_row(gap["what"], percent(gap["share"]), gap["reason"])
        parts.append(filled)
    else:
        parts.append(Text("whole layers, kernels and collectives of these plans: all measured"))
    if rest := _rest([gap for gap in gaps if gap["share"] < WORTH]):
        parts.append(Text(rest))
    return Group(*parts)


def recorded_view(document: dict[str, Any]) -> RenderableType:
    """What recorded runs showed: measured over predicted times, by run."""
    columns = "recorded run | forward | backward | optimizer | step | step, corrected"
    filled = table(columns, right=(1, 2, 3, 4, 5))
    for run in document["runs"]:
        factors = (f"x {run[name]:.3f}" for name in ("forward", "backward", "optimizer", "step"))
        name = f"{run['date']} {run['model']}, {run['plan']}"
        filled.add_row(name, *factors, f"x {run['left']:.3f}")
    return filled


def _rest(gaps: list[dict[str, Any]]) -> str:
    """What hardly matters to the plans, one line."""
    reasons = Counter(gap["reason"].partition(":")[0] for gap in gaps)
    listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"left out, of little or no share in these plans: {listed}" if listed else ""
