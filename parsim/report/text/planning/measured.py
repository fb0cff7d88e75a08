"""The best plans of a search that ran, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.planner.measured import MeasuredPlans
from parsim.report.text.tables import percent, table
from parsim.units import format_seconds


def measured_view(result: MeasuredPlans) -> RenderableType:
    """One row a plan in predicted order; regret, rank correlation, and how to predict closer."""
    rows = table("ran | predicted | measured | error", right=range(1, 4))
    for entry in result.plans:
        rows.add_row(
            entry.plan.label(),
            format_seconds(entry.predicted),
            format_seconds(entry.measured),
            percent(entry.error, signed=True),
        )
    lines = [result.headline]
    if result.spearman is not None and len(result.plans) > 1:
        lines.append(
            f"rank correlation of predicted and measured times (Spearman): {_rank(result)}"
        )
    if result.twin:
        lines.append(f"a twin of the job ran: {result.twin}; its seconds are its own")
    lines += [f"not run: {plan}: {why}" for plan, why in result.skipped]
    lines.append(_calibration(result))
    return Group(Text(""), rows, *map(Text, lines))


def _rank(result: MeasuredPlans) -> str:
    return "-" if result.spearman is None else f"{result.spearman:.2f}"


def _calibration(result: MeasuredPlans) -> str:
    """How this machine is measured, so that the next prediction is about it."""
    words = f"parsim calibrate --scenario {result.scenario} --out device.yaml"
    if result.twin:
        return f"predict this machine closer: {words}"
    return f"predict this machine closer: {words}, then search with --device device.yaml"
