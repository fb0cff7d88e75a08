"""A Monte Carlo of steps for people: how long, how spread, and what makes them late."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.cost.jitter import SOURCES
from parsim.report.text.tables import bar, pairs, table
from parsim.sim.lateness.monte_carlo import JitterResult
from parsim.units import format_seconds, percent

BINS = 12
"""Bars of the histogram."""


def jitter_view(jitter: JitterResult) -> RenderableType:
    """Mean, p50 and p99, what each source costs, the histogram, what was assumed."""
    title = f"jitter: {len(jitter.times):,} steps, seed {jitter.seed}"
    return Group(
        Text(""),
        pairs(_headlines(jitter), title=title),
        Text(""),
        _losses(jitter),
        Text(""),
        _histogram(jitter.times),
        Text(""),
        *(Text(line, style="dim") for line in _notes(jitter)),
    )


def _headlines(jitter: JitterResult) -> Iterator[tuple[str, str]]:
    slower = percent(jitter.mean / jitter.base - 1.0, signed=True, digits=2)
    base = f"{format_seconds(jitter.base)} without jitter"
    yield "mean", f"{format_seconds(jitter.mean)}  ({slower} on {base})"
    yield "p50", format_seconds(jitter.quantile(0.5))
    yield "p99", format_seconds(jitter.quantile(0.99))
    within = f"steps of one cluster {format_seconds(jitter.within)}"
    yield "std", f"{format_seconds(jitter.std)}  ({within})"
    for words in jitter.slow_ranks:
        yield "slow rank", words


def _losses(jitter: JitterResult) -> Table:
    columns = "source | alone it adds | switched off the mean falls by | of the loss | "
    filled = table(columns, title="what makes steps late", right=(1, 2, 3))
    whole = jitter.mean - jitter.base
    for name, value in jitter.losses.items():
        share = value / whole if whole else 0.0
        seconds = (format_seconds(jitter.alone[name]), format_seconds(value))
        drawn = bar(min(max(share, 0.0), 1.0))
        filled.add_row(SOURCES[name], *seconds, percent(share), drawn)
    return filled


def _histogram(times: tuple[float, ...]) -> Table:
    counts, edges = np.histogram(times, bins=BINS if max(times) > min(times) else 1)
    filled = table("step time from | steps | ", title="histogram", right=(1,))
    for low, count in zip(edges[:-1], counts, strict=True):
        drawn = bar(int(count) / int(counts.max()))
        filled.add_row(format_seconds(float(low)), str(count), drawn)
    return filled


def _notes(jitter: JitterResult) -> Iterator[str]:
    if jitter.straggler > 0:
        yield (
            f"the mean replaces the straggler allowance of {percent(jitter.straggler, digits=2)} "
            "that the step time above holds: both stand for the same waiting"
        )
    yield "who waits for one source does not wait for another: what they cost is no sum"
    for words in jitter.assumptions:
        yield f"assumed: {words}"
