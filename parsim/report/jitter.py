"""A Monte Carlo of steps for people: how long, how spread, and what makes them late."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.cost.jitter import SOURCES
from parsim.report.text import BAR, table
from parsim.sim.monte_carlo import JitterResult
from parsim.units import format_seconds

BINS = 12
"""Bars of the histogram."""


def jitter_view(found: JitterResult) -> RenderableType:
    """Mean, p50 and p99, what each source costs, the histogram, what was assumed."""
    head = table("", "", title=f"jitter: {len(found.times):,} steps, seed {found.seed}")
    for name, value in _headline(found):
        head.add_row(name, value)
    return Group(
        Text(""),
        head,
        Text(""),
        _losses(found),
        Text(""),
        _histogram(found.times),
        Text(""),
        *(Text(line, style="dim") for line in _notes(found)),
    )


def _headline(found: JitterResult) -> Iterator[tuple[str, str]]:
    slower = found.mean / found.base - 1.0
    yield "mean", f"{format_seconds(found.mean)}  ({100 * slower:+.2f} % on {_base(found)})"
    yield "p50", format_seconds(found.quantile(0.5))
    yield "p99", format_seconds(found.quantile(0.99))
    yield (
        "std",
        f"{format_seconds(found.std)}  (steps of one cluster {format_seconds(found.within)})",
    )
    for words in found.slow_ranks:
        yield "slow rank", words


def _base(found: JitterResult) -> str:
    return f"{format_seconds(found.base)} without jitter"


def _losses(found: JitterResult) -> Table:
    made = table("source", "alone it adds", "switched off the mean falls by", "of the loss", "",
                 title="what makes steps late", right=(1, 2, 3))  # fmt: skip
    whole = found.mean - found.base
    for name, value in found.losses.items():
        share = value / whole if whole else 0.0
        bar = "█" * round(BAR * min(max(share, 0.0), 1.0))
        alone = format_seconds(found.alone[name])
        made.add_row(SOURCES[name], alone, format_seconds(value), f"{100 * share:.1f} %", bar)
    return made


def _histogram(times: tuple[float, ...]) -> Table:
    counts, edges = np.histogram(times, bins=BINS if max(times) > min(times) else 1)
    made = table("step time from", "steps", "", title="histogram", right=(1,))
    for low, count in zip(edges[:-1], counts, strict=True):
        bar = "█" * round(BAR * int(count) / int(counts.max()))
        made.add_row(format_seconds(float(low)), str(count), bar)
    return made


def _notes(found: JitterResult) -> Iterator[str]:
    if found.straggler > 0:
        yield (
            f"the mean replaces the straggler allowance of {100 * found.straggler:.2f} % that the "
            "step time above holds: both stand for the same waiting"
        )
    yield "who waits for one source does not wait for another: what they cost is no sum"
    for words in found.assumptions:
        yield f"assumed: {words}"
