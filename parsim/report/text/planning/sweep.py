"""Outcomes of a sweep, or of several plans, as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.planning.training_run import amount
from parsim.report.text.tables import between, table
from parsim.sim.confidence.interval import Interval
from parsim.sweeps import Outcome, Outcomes
from parsim.units import format_bytes, format_seconds

LONGEST_ERROR = 90


def outcomes_view(result: Outcomes) -> RenderableType:
    """One row a case: its values, its plan, time with interval, speed against the first, memory."""
    lines: list[RenderableType] = [_rows(result)]
    lines += [Text(""), Text(result.headline)]
    if len(result.rows) < result.total:
        lines.append(Text(f"interrupted: {len(result.rows)} of {result.total} cases"))
    return Group(*lines)


def _rows(result: Outcomes) -> Table:
    done = [row for row in result.rows if not row.error]
    whole = any(row.days == row.days for row in done)
    same_plan = len({row.plan for row in done}) == 1
    columns = [
        *result.keys,
        *([] if same_plan else ["plan"]),
        *("step time", "80 % interval", "speed", "MFU", "bubble", "peak memory"),
        *(["days", "cost, USD"] if whole else []),
    ]
    rows = table(" | ".join(columns), right=range(len(result.keys) + (not same_plan), 20))
    first = done[0].tokens_per_s if done else 1.0
    for row in result.rows:
        head = [row.values[key] for key in result.keys]
        if row.error:
            short = row.error[:LONGEST_ERROR]
            rows.add_row(*head, *([f"{row.plan} {short}".strip()] if not same_plan else [short]))
            continue
        plan = [] if same_plan else [row.plan]
        rows.add_row(*head, *plan, *_numbers(row, first), *(_run(row) if whole else []))
    return rows


def _numbers(row: Outcome, first: float) -> list[str]:
    interval = Interval(low=row.step_time_low_s, high=row.step_time_high_s, basis="")
    return [
        format_seconds(row.step_time_s),
        between(interval),
        f"{row.tokens_per_s / first:.3g} x",
        f"{100 * row.mfu:.1f} %",
        f"{100 * row.bubble_fraction:.1f} %",
        f"{format_bytes(row.peak_allocated_bytes)} ({row.memory_fit})",
    ]


def _run(row: Outcome) -> list[str]:
    return [amount(x) if x == x else "-" for x in (row.days, row.cost_usd)]  # nan is unlike itself
