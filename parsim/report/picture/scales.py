"""The scales of a timeline's picture, names and times, and windows on parts of a long step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, ScalarFormatter

from parsim.report.picture.colours import CHUNKED
from parsim.report.picture.grid import DENSE_RANKS, DPI, Grid
from parsim.report.picture.legend import LINE, text_inches
from parsim.timelines.kinds import Stream
from parsim.timelines.timeline import Timeline

LANE_NAMES_INCHES: Final = 0.55
"""Room that is beside the rows in any case."""
WIDEST_LANE_NAMES: Final = 1.2
"""Room that names of lanes may need there at most; longer ones are left out."""

ON_WHITE: Final[dict[str, Any]] = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
"""What lies behind a text that lines run past."""

_LANE_POINTS: Final = 5.5
_LANE_COLOUR: Final = "#707070"
_TICKS: Final = 9
_APART: Final = 1.6
"""Labels of the time axis are at least so many times their width apart."""
_LABEL_POINTS: Final = 9.0

_LANE_NAMES: Final = {
    Stream.SEND: "send",
    Stream.RECV: "receive",
    Stream.TP: "activations",
    Stream.EP: "experts",
    Stream.OFFLOAD: "activations moved",
    Stream.DP: "data",
}
"""What the thin lanes carry; a stream without a name of its own is called as it is."""


def name_rows(axes: Axes, grid: Grid, names: Sequence[str]) -> None:
    """Name as many rows as have room, on a scale of powers of two."""
    step = 1
    while step * grid.row_inches < LINE * 0.9:
        step *= 2
    middle = sum(grid.lanes["compute"]) / 2
    axes.set_yticks([row + middle for row in range(0, len(names), step)], names[::step])
    axes.set_ylabel("rank")
    axes.tick_params(axis="y", length=0.0)


def name_lanes(axes: Axes, grid: Grid) -> None:
    """Name the thin lanes of each row where they have room; neighbours together where not each."""
    named = _lane_names(grid)
    at = [row + middle for row in grid.rows.values() for middle, _ in named]
    axes.yaxis.set_minor_locator(FixedLocator(at))
    axes.yaxis.set_minor_formatter(FixedFormatter([text for _, text in named] * len(grid.rows)))
    look: dict[str, Any] = {"labelsize": _LANE_POINTS, "labelcolor": _LANE_COLOUR}
    axes.tick_params(axis="y", which="minor", length=0.0, **look)


def _lane_names(grid: Grid) -> list[tuple[float, str]]:
    """Middle and name of each group of lanes that is as tall as its name; none where none is."""
    lanes: dict[tuple[float, float], list[str]] = {}
    for stream, lane in grid.lanes.items():
        if stream != Stream.COMPUTE:
            lanes.setdefault(lane, []).append(_LANE_NAMES.get(stream, stream))
    tall = sum(bottom - top for top, bottom in lanes) * grid.row_inches * 72
    lines = min(int(tall / (0.85 * _LANE_POINTS)), len(lanes))
    if not lines:
        return []
    groups = [
        list(lanes)[i * len(lanes) // lines : (i + 1) * len(lanes) // lines] for i in range(lines)
    ]
    named = [
        ((group[0][0] + group[-1][1]) / 2, ", ".join(n for lane in group for n in lanes[lane]))
        for group in groups
    ]
    fits = all(text_inches(text, _LANE_POINTS) < WIDEST_LANE_NAMES for _, text in named)
    return named if fits else []


def lane_names_inches(grid: Grid) -> float:
    """Room that the names of a grid's lanes need beside its rows."""
    widths = [text_inches(text, _LANE_POINTS) for _, text in _lane_names(grid)]
    return max([LANE_NAMES_INCHES, *widths])


def keep_clear(axes: Axes) -> None:
    """Lay the numbers of the time axis, and its name, on white: no line runs through them."""
    for text in (*axes.get_xticklabels(), axes.xaxis.label):
        text.set_bbox(ON_WHITE)


def mark_end(axes: Axes, grid: Grid) -> None:
    """Put the last tick at the end of the picture, and leave out what would touch its label."""
    last = f"{grid.end:.4g}"
    ticks, labels = _ticks(grid, 1.5 * text_inches(last, _LABEL_POINTS))
    axes.set_xticks([*ticks, grid.end], [*labels, last])


def mark_inside(axes: Axes, grid: Grid) -> None:
    """Put ticks where their labels do not reach into the panel to the right."""
    axes.set_xticks(*_ticks(grid, 0.5 * text_inches(f"{grid.end:.4g}", _LABEL_POINTS)))


def _ticks(grid: Grid, inches: float) -> tuple[list[float], list[str]]:
    """Round moments with their labels, none of them so near to the end, or to one another."""
    label = text_inches(f"{grid.end:.4g}", _LABEL_POINTS)
    number = max(1, min(_TICKS, int(grid.column_inches / (_APART * label))))
    ticks = MaxNLocator(number, steps=[1, 2, 2.5, 5, 10]).tick_values(grid.start, grid.end)
    room = inches / grid.column_inches * (grid.end - grid.start)
    kept = [float(tick) for tick in ticks if grid.start <= tick <= grid.end - room]
    plain = ScalarFormatter(useOffset=False)
    plain.create_dummy_axis()
    plain.set_locs(kept)
    return kept, [plain(tick) for tick in kept]


GAP_INCHES: Final = 0.2
"""Between two windows."""

_BARCODE_PX: Final = 8.0
"""Boxes whose median is narrower hold no digit and are drawn magnified too."""
_MAGNIFIED_PX: Final = 18.0
"""Width of the median box in a window: backwards, the longer ones, have room for two digits."""
_AFTER: Final = 0.15
"""Share of the drain's window after the last backward, so that one sees what follows."""


_PARTS: Final = ("warm-up", "steady state", "drain")
_PARTS_ALONE: Final = ("begin", "middle", "end")
"""Names of the windows of a pipeline, and of a step without one."""


class Window(NamedTuple):
    """A part of the step, in seconds."""

    name: str
    start: float
    end: float


def windows_of(timeline: Timeline, column_inches: float) -> tuple[Window, ...]:
    """The three windows of a step whose rows are so many inches wide.

    A step of hundreds of micro-batches is a barcode: boxes narrower than a digit. Three windows
    below the whole step show what such boxes are, side by side, each as long in time as the others:

        ┌─┐─────────────┌─┐────────────┌─┐────     the whole step
        └─┘─────────────└─┘────────────└─┘────
        [ warm-up ]  [ steady state ]  [ drain ]   magnified

    Where there is one stage there is no pipeline to fill: they are begin, middle and end.
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
    names = _PARTS if len({span.stage for span in spans}) > 1 else _PARTS_ALONE
    middle, drained = (first + last) / 2, min(last + _AFTER * length, timeline.end)
    return (
        Window(names[0], first, first + length),
        Window(names[1], middle - length / 2, middle + length / 2),
        Window(names[2], drained - length, drained),
    )


def window_inches(column_inches: float) -> float:
    """Width of each of three windows side by side."""
    return (column_inches - 2 * GAP_INCHES) / 3
