"""Choices among plans and cluster sizes as a table, and why cluster sizes have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.planner.choice import Choice, Choices
from parsim.report.text.planning.training_run import run_cells
from parsim.report.text.tables import table
from parsim.units import counted, format_bytes, format_seconds

MOST_OF_FRONT = 20
"""Choices of a front that are printed; its picture and `--json` have all."""
MOST_LEFT_OUT = 6
"""Node counts without a choice that are explained, the largest; `--json` has all."""


def choices_view(result: Choices) -> RenderableType:
    """The choices in their order, and why cluster sizes have none."""
    return Group(
        _choice_rows(result),
        Text(""),
        Text(f"least {result.objective} first, of {result.legal:,} legal plans"),
        Text(_front_words(result)),
        *_left_out_words(result.left_out),
        Text(result.optimality, style="dim"),
    )


def _left_out_words(left_out: Mapping[int, str]) -> Iterator[Text]:
    """Why node counts have no choice; the largest ones, which come nearest, are explained."""
    counts = sorted(left_out)
    if len(counts) > MOST_LEFT_OUT:
        least, most = counts[0], counts[-MOST_LEFT_OUT - 1]
        which = counted(most, "node") if least == most else f"{least} to {most} nodes"
        yield Text(f"{which}: no choice either (see --json)")
    for nodes in counts[-MOST_LEFT_OUT:]:
        yield Text(f"{counted(nodes, 'node')}: {left_out[nodes]}")


def _front_words(result: Choices) -> str:
    if not result.front:
        return "* no other choice listed is as good in time, memory and cost at once"
    beaten = sum(not choice.on_front for choice in result.choices)
    rest = len(result.choices) - beaten - MOST_OF_FRONT
    unlisted = f"{rest} more like them are in the picture and in --json; " if rest > 0 else ""
    return (
        f"none of these is beaten in time, memory and cost at once; {unlisted}{beaten} more are "
        f"the best in time and memory on as many nodes, and beaten on others (see --json)"
    )


def _choice_rows(result: Choices) -> Table:
    choices = result.choices
    if result.front:
        choices = tuple(choice for choice in choices if choice.on_front)[:MOST_OF_FRONT]
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
