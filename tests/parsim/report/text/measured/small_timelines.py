"""Timelines of a few spans, written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parsim.comparison.compared import TimelineComparison
from parsim.report.text.measured.timelines import comparison_view
from parsim.report.text.tables import console
from parsim.timelines.timeline import MemoryCurve, Span, Timeline, ordered
from parsim.units import GIB

Pipeline = Callable[..., Timeline]


def spans(rank: int, *, slower: float = 1.0) -> list[Span]:
    """A rank that computes 2 s and 4 s, 1 s of the latter exposed, reduces and updates."""
    lanes = [
        Span(rank, "compute", "F", 0.0, 2.0, rank, 0),
        Span(rank, "compute", "B", 3.0, 7.0, rank, 0, exposed=1.0),
        Span(rank, "dp", "REDUCE_GRAD", 6.0, 8.5, rank),
        Span(rank, "compute", "OPTIMIZER", 8.5, 9.0),
    ]
    return [
        s._replace(start=s.start * slower, end=s.end * slower, exposed=s.exposed * slower)
        for s in lanes
    ]


def timeline(*ranks: int, slower: float = 1.0, peak: float = 8.0 * GIB, **meta: Any) -> Timeline:
    return Timeline(
        spans=ordered(span for rank in ranks for span in spans(rank, slower=slower)),
        memory=tuple(MemoryCurve(rank=r, times=(0.0, 1.0), bytes=(1.0, peak)) for r in ranks),
        meta=meta,
    )


def printed(comparison: TimelineComparison, capsys: pytest.CaptureFixture[str]) -> list[str]:
    console().print(comparison_view(comparison))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def scaled(timeline: Timeline, factor: float) -> Timeline:
    """All times longer by a factor, those in `meta` too."""
    step = timeline.meta.get("step_time_s")
    return Timeline(
        spans=tuple(
            s._replace(start=s.start * factor, end=s.end * factor, exposed=s.exposed * factor)
            for s in timeline.spans
        ),
        memory=timeline.memory,
        meta={**timeline.meta, **({"step_time_s": step * factor} if step else {})},
    )
