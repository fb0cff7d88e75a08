"""Data-parallel strategies as text: what one of them does to a plan, and the list of all."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.report.text.tables import pairs
from parsim.sim.rounds.figures import StalenessFigures, StrategyFigures
from parsim.strategy import STRATEGIES
from parsim.units import format_bytes, percent

Row = dict[str, str]
BUSIEST = 3
"""Queues that are named."""


def strategy_lines(figures: StrategyFigures) -> Iterator[tuple[str, str]]:
    """Names and values of a strategy's figures."""
    answered = "events alone" if figures.tier == "events" else "the recurrence"
    yield "strategy", f"{figures.name}, answered by {answered}; limited by {figures.limits}"
    yield (
        "samples/s",
        f"{figures.samples_per_second:,.1f}: {figures.speed_up:.2f} times one worker, efficiency "
        f"{percent(figures.efficiency)} of {figures.workers} workers",
    )
    yield (
        "traffic",
        f"{figures.roles[0]}: sends {format_bytes(figures.sent)} and receives "
        f"{format_bytes(figures.received)} a step",
    )
    if figures.servers:
        yield "servers", _servers(figures)
    if figures.dropped:
        yield "dropped", f"{percent(figures.dropped)} of gradients did not count"
    if figures.staleness:
        yield "staleness", _staleness(figures.staleness)


def _servers(figures: StrategyFigures) -> str:
    """Traffic, memory and busiest parts of the servers."""
    words = (
        f"{figures.servers}: each receives {format_bytes(figures.server_received)} and sends "
        f"{format_bytes(figures.server_sent)} a step"
    )
    if figures.server_bytes:
        words += f", holds {format_bytes(figures.server_bytes)}"
    busiest = list(figures.busy.items())[:BUSIEST]
    shares = ", ".join(f"{name} {percent(share, digits=0)}" for name, share in busiest)
    return f"{words}; busy: {shares}" if shares else words


def _staleness(ages: StalenessFigures) -> str:
    """Ages of gradients."""
    slowest = max(range(len(ages.by_worker)), key=ages.by_worker.__getitem__)
    return (
        f"{ages.mean:.2f} updates in the mean, median {ages.p50}, 95 % within {ages.p95}, at most "
        f"{ages.largest}; worker {slowest} has the oldest, {ages.by_worker[slowest]:.2f}"
    )


def strategy_rows() -> list[Row]:
    """Every strategy with what it does, costs and is good for."""
    return [
        {
            "id": name,
            "what": entry.what,
            "formula": entry.formula,
            "when": entry.when,
            "options": entry.options,
            "paper": entry.paper,
        }
        for name, entry in STRATEGIES.items()
    ]


def strategies_view() -> RenderableType:
    """A paragraph a strategy, with its formula, its options and its paper."""
    parts: list[RenderableType] = []
    for row in strategy_rows():
        parts += [Text(row["id"], style="bold"), Text(row["what"])]
        rest = [(name, row[name]) for name in ("formula", "when", "options", "paper") if row[name]]
        rows = pairs(rest)
        rows.show_header = False
        parts += [rows, Text("")]
    words = "n workers, k servers, P bytes of weights, b bytes/s of a link, F and B of a step"
    return Group(*parts, Text(f"formulas: {words}", style="dim"))
