"""Which parts of a long step are drawn magnified: its warm-up, its steady state and its drain.

A step of hundreds of micro-batches is a barcode: boxes narrower than a digit. Three windows below
the whole step show what such boxes are, side by side, each as long in time as the others:

    ┌─┐─────────────┌─┐────────────┌─┐────     the whole step
    └─┘─────────────└─┘────────────└─┘────
    [ warm-up ]  [ steady state ]  [ drain ]   magnified
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from parsim.report.picture.colours import CHUNKED
from parsim.report.picture.grid import DENSE_RANKS, DPI
from parsim.timelines.timeline import Timeline

GAP_INCHES: Final = 0.2
"""Between two windows."""

_BARCODE_PX: Final = 8.0
"""Boxes whose median is narrower hold no digit and are drawn magnified too."""
_MAGNIFIED_PX: Final = 18.0
"""Width of the median box in a window: backwards, the longer ones, have room for two digits."""
_AFTER: Final = 0.15
"""Share of the drain's window after the last backward, so that one sees what follows."""


class Window(NamedTuple):
    """A part of the step, in seconds."""

    name: str
    start: float
    end: float


def windows_of(timeline: Timeline, column_inches: float) -> tuple[Window, ...]:
    """The three windows of a step whose rows are so many inches wide.

    None where its boxes are wide enough, or so few that three windows would show it all, and none
    where the rows of so many ranks are too thin for a number at any width.
    """
    spans = [span for span in timeline.spans if span.stream == "compute" and span.kind in CHUNKED]
    if not spans or len(timeline.ranks) > DENSE_RANKS:
        return ()
    median = float(np.median([span.end - span.start for span in spans]))
    pixels = column_inches * DPI
    length = median * window_inches(column_inches) * DPI / _MAGNIFIED_PX
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    if median / timeline.end * pixels >= _BARCODE_PX or 3 * length >= last - first:
        return ()
    middle, drained = (first + last) / 2, min(last + _AFTER * length, timeline.end)
    return (
        Window("warm-up", first, first + length),
        Window("steady state", middle - length / 2, middle + length / 2),
        Window("drain", drained - length, drained),
    )


def window_inches(column_inches: float) -> float:
    """Width of each of three windows side by side."""
    return (column_inches - 2 * GAP_INCHES) / 3
