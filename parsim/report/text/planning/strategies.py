"""What a search says of data-parallel strategies: the fastest plan of each beside all-reduces."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from parsim.planner.ranked import Ranked
from parsim.planner.result import SearchResult
from parsim.planner.twins import fold_twins
from parsim.report.text.tables import between, table
from parsim.units import format_bytes, format_seconds, percent

TITLE = "the fastest plan of each strategy, beside that of all-reduced gradients"
APART = "train otherwise than with the whole batch: samples/s compare, convergence does not"
MARK, TRAINS_OTHERWISE = "*", "trains otherwise than with the whole batch"
"""Stands behind plans whose steps are not those of the whole batch, and what it means."""


def strategies_view(result: SearchResult) -> Iterator[RenderableType]:
    """The fastest plan of each strategy, why others have none, and what trains otherwise."""
    if len(result.fastest) > 1:
        yield from (Text(""), _fastest(result.fastest))
        if any(ranked.trains_otherwise for ranked in result.fastest):
            yield Text(f"{MARK} {TRAINS_OTHERWISE}", style="dim")
    for name, why in result.planless.items():
        yield Text(f"no plan with {name}: {why}")
    if result.apart:
        yield from (Text(""), _apart(result.apart))


def _fastest(fastest: tuple[Ranked, ...]) -> Table:
    """A row for each strategy; shares are of the samples a second of the first."""
    columns = "plan | step time | samples/s | of the first | age | peak memory | limited by"
    rows = table(columns, title=TITLE, right=(1, 2, 3, 4, 5))
    first = fastest[0]
    for ranked in fastest:
        rows.add_row(
            f"{ranked.plan.label()}{f' {MARK}' if ranked.trains_otherwise else ''}",
            format_seconds(ranked.step_time),
            _samples(ranked),
            percent(first.step_time / ranked.step_time, digits=0),
            _age(ranked),
            format_bytes(ranked.peak_allocated),
            ranked.strategy.limits if ranked.strategy else "",
        )
    return rows


def _apart(apart: tuple[Ranked, ...]) -> Table:
    """Plans with strategies whose steps are not those of the whole batch; never the best."""
    columns = "plan | step time | 80 % interval | samples/s | age of gradients | peak memory"
    rows = table(columns, title=APART, right=(1, 2, 3, 4, 5))
    for _, ranked, _ in fold_twins(apart):
        rows.add_row(
            ranked.plan.label(),
            format_seconds(ranked.step_time),
            between(ranked.interval),
            _samples(ranked),
            _age(ranked),
            format_bytes(ranked.peak_allocated),
        )
    return rows


def _samples(ranked: Ranked) -> str:
    """Samples a second of all workers."""
    return f"{ranked.plan.global_batch_size / ranked.step_time:,.0f}"


def _age(ranked: Ranked) -> str:
    """How old gradients are in the mean, where they are not of the newest weights."""
    ages = ranked.strategy.staleness if ranked.strategy else None
    return f"{ages.mean:.1f} updates" if ages else "-"
