"""The table of all schedules of one shape as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.report.text.tables import table
from parsim.sim.orders.auto import AutoSchedule
from parsim.sim.schedules.rows import ScheduleRow, ScheduleTable
from parsim.units import format_bytes, format_seconds, percent

UNIT = "a unit is the forward of a rank's whole share of the layers"
WORDS = (
    "bubble: idle share of the time, mean over ranks; overhead: idle over busy time; in a rank: "
    "idle between a rank's own first and last action, where most",
    "activations: most micro-batches held at once, on the fullest and the emptiest rank; weights: "
    "copies of its layers' weights that a rank holds; messages: between ranks, in a step",
)


def schedules_view(compared: ScheduleTable) -> RenderableType:
    """The rows, what the columns mean, and why other schedules are missing."""
    unit = [UNIT] if compared.unit == "unit" else []
    words = (*unit, *WORDS) if compared.rows else unit
    return Group(
        *([_rows(compared), Text("")] if compared.rows else [Text(compared.title)]),
        *(Text(line, style="dim") for line in words),
        *_asynchronous(compared),
        *(Text(f"{name}: {why}") for name, why in compared.refused),
    )


def _rows(compared: ScheduleTable) -> Table:
    planned = any(row.in_seconds for row in compared.rows)
    columns = (
        "schedule | v | time | bubble | overhead | in a rank | activations | weights | messages"
    )
    columns += " | step time | peak memory | " if planned else ""
    rows = table(columns, title=compared.title, right=range(1, 11))
    for row in compared.rows:
        rows.add_row(*_cells(row, compared.unit))
    return rows


def _asynchronous(compared: ScheduleTable) -> Iterator[RenderableType]:
    """The pipelines that never flush, where there are any."""
    if not compared.asynchronous:
        return
    seconds = compared.unit == "s"
    columns = "without flush | steady, a micro-batch | fill | drain | versions | updates late"
    rows = table(columns + (" | peak memory" if seconds else ""), right=range(1, 7))
    for row in compared.asynchronous:
        times = (row.steady, row.fill, row.drain)
        rows.add_row(
            row.name,
            *(format_seconds(time) if seconds else f"{time:.4g}" for time in times),
            ends(row.versions),
            ends(row.delays),
            *([format_bytes(max(row.peak))] if seconds else []),
        )
    yield Text("")
    yield rows
    for row in compared.asynchronous:
        yield Text(f"{row.name}: {row.what}", style="dim")


def _cells(row: ScheduleRow, unit: str) -> Iterator[str]:
    yield row.name
    yield str(row.v)
    yield format_seconds(row.makespan) if unit == "s" else f"{row.makespan:.4g}"
    yield percent(row.bubble_fraction)
    yield percent(row.bubble_overhead)
    yield percent(row.span_bubble)
    yield ends(row.activations)
    yield ends(row.weights)
    yield f"{row.messages:,}"
    if row.in_seconds is not None:
        yield format_seconds(row.in_seconds.step_time)
        yield format_bytes(row.in_seconds.peak_allocated)
        yield row.in_seconds.fit


def ends(values: Sequence[float]) -> str:
    """The most and the least of some numbers, once where they are equal."""
    most, least = f"{max(values):.3g}", f"{min(values):.3g}"
    return most if most == least else f"{most} / {least}"


def auto_view(auto: AutoSchedule) -> RenderableType:
    """The order that was found, beside the named ones that fit, and how far it may be off."""
    rows = table("schedule | step time", right=(1,))
    times = {**auto.orders, **auto.named}
    for name, seconds in sorted(times.items(), key=lambda pair: pair[1]):
        rows.add_row(name, format_seconds(seconds))
    limits, each = ", ".join(map(str, auto.limits)), "rank" if auto.plan.stages is None else "stage"
    return Group(
        rows,
        Text(""),
        Text(f"micro-batches in flight that fit, by {each}: {limits}", style="dim"),
        Text(auto.words(), style="dim"),
    )
