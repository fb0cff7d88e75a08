"""Choices among plans and cluster sizes as text for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.planner.choice import Choice, Choices
from parsim.report.text.planning.training_run import amount
from parsim.report.text.tables import table
from parsim.training_run.estimate import Estimate
from parsim.training_run.training_run import TrainingRun
from parsim.units import format_bytes, format_seconds

MOST_LEFT_OUT = 6
"""Node counts without a choice that are explained; `--json` has all."""


def choices_view(result: Choices) -> RenderableType:
    """The choices in their order, and why cluster sizes have none."""
    return Group(
        _rows(result),
        Text(""),
        Text(f"least {result.objective} first, of {result.legal:,} legal plans"),
        Text(_front_words(result)),
        *(
            Text(f"{nodes} nodes: {why}")
            for nodes, why in list(result.left_out.items())[:MOST_LEFT_OUT]
        ),
        Text(result.optimality, style="dim"),
    )


def _front_words(result: Choices) -> str:
    if not result.front:
        return "* no other choice listed is as good in time, memory and cost at once"
    beaten = sum(not choice.on_front for choice in result.choices)
    return (
        f"none of these is beaten in time, memory and cost at once; {beaten} more are the best in "
        f"time and memory on as many nodes, and beaten on others (see --json)"
    )


def _rows(result: Choices) -> Table:
    choices = result.choices
    if result.front:
        choices = tuple(choice for choice in choices if choice.on_front)
    whole = any(choice.ranked.run for choice in choices)
    run = " | days | cost, USD | energy, kWh" if whole else ""
    rows = table(f"# | nodes | plan | step time{run} | peak memory | ", right=(0, 1, 3, 4, 5, 6, 7))
    for number, choice in enumerate(choices, start=1):
        rows.add_row(str(number), *_cells(choice))
    return rows


def _cells(choice: Choice) -> list[str]:
    ranked = choice.ranked
    return [
        str(choice.nodes),
        ranked.plan.label(),
        format_seconds(ranked.step_time),
        *(run_cells(ranked.run) if ranked.run else ()),
        format_bytes(ranked.peak_allocated),
        "*" if choice.on_front else "",
    ]


def run_cells(run: TrainingRun) -> tuple[str, str, str]:
    """Days with interruptions and dollars, each with its interval, and kilowatt-hours."""
    return (
        _between(run.elapsed.times(1.0 / 86400.0)),
        _between(run.cost) if run.cost else "-",
        amount(run.energy.value) if run.energy else "-",
    )


def _between(estimate: Estimate) -> str:
    low, value, high = (amount(part) for part in estimate)
    return f"{value} ({low} to {high})"
