"""From a timeline to the grid of its picture: rows, lanes, chunks, and where the picture ends."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from parsim.errors import InputError
from parsim.report.picture.grid import DENSE_RANKS, DPI, Grid, is_chunked, readable_unit
from parsim.report.text.summary import rank_labels
from parsim.timelines.timeline import STREAMS, Span, Timeline

_DENSE_BOXES: Final = 2000

# Inches.
ONE_ROW: Final = 0.6
_ALL_ROWS: Final = 8.0
_SHARED_LANE: Final = 0.3


def lay_out(
    timeline: Timeline,
    *,
    column_inches: float,
    end: float,
    start: float = 0.0,
    unit_of: float | None = None,
    one_row: float = ONE_ROW,
) -> Grid:
    """The grid of a picture from `start` to `end` seconds whose rows have the given width.

    Time is in the unit that suits `unit_of` seconds (where not given: the end). `one_row` inches is
    the height of a row of few.
    """
    ranks = timeline.ranks
    unit, per_second = readable_unit(end if unit_of is None else unit_of)
    row_inches = min(one_row, _ALL_ROWS * one_row / ONE_ROW / len(ranks))
    boxes = sum(
        span.stream == "compute" and span.start < end and span.end > start
        for span in timeline.spans
    )
    return Grid(
        rows={rank: row for row, rank in enumerate(ranks)},
        lanes=_lanes({span.stream for span in timeline.spans}, row_inches),
        chunks=_chunks(timeline.spans),
        start=start * per_second,
        end=end * per_second,
        unit=unit,
        per_second=per_second,
        row_inches=row_inches,
        column_inches=column_inches,
        dense=len(ranks) > DENSE_RANKS or boxes > _DENSE_BOXES,
        versions=timeline.meta.get("weight_versions", ()),
    )


def picture_end(timeline: Timeline, until: float | None) -> float:
    """End of the picture in seconds: `until` where given, else that of the timeline.

    Raises:
        InputError: there is no time to draw.
    """
    if timeline.end <= 0.0:
        raise InputError("cannot draw the timeline: it has no span that takes time")
    if until is not None and not 0.0 < until < math.inf:
        raise InputError(f"until={until} s cannot end a picture; allowed: more than 0 s, finite")
    return timeline.end if until is None else until


def row_names(timeline: Timeline) -> Sequence[str]:
    """Text beside each row, from the top: the label that `meta` gives a rank, or its number."""
    labels = rank_labels(timeline)
    return [textwrap.shorten(labels.get(r, str(r)), 40, placeholder="...") for r in timeline.ranks]


def _lanes(streams: set[str], row_inches: float) -> dict[str, tuple[float, float]]:
    """Top and bottom of each stream within a row of height 1; compute takes most of it.

    In thin rows the communication streams share one lane; the thinnest have no gap between them.
    """
    others = [name for name in STREAMS[1:] if name in streams]
    others += sorted(streams - set(STREAMS))
    gap = 0.05 if row_inches * DPI >= 12 else 0.0
    if not others:
        return {"compute": (gap, 1.0 - gap)}
    lanes = {"compute": (gap, 0.65)}
    shared = row_inches < _SHARED_LANE
    tall = (0.32 - gap) / (1 if shared else len(others))
    for i, name in enumerate(others):
        top = 0.68 if shared else 0.68 + i * tall
        lanes[name] = (top, top + tall)
    return lanes


def _chunks(spans: Iterable[Span]) -> dict[tuple[int, int], int]:
    """Number of a stage among the stages that its rank computes, by (rank, stage)."""
    stages: dict[int, set[int]] = {}
    for span in spans:
        if is_chunked(span):
            stages.setdefault(span.rank, set()).add(span.stage)
    return {
        (r, stage): i for r, of_rank in stages.items() for i, stage in enumerate(sorted(of_rank))
    }
