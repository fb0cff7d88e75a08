"""The picture of a timeline: ranks as rows, true time to the right, grey where a rank idles.

Each rank's row, rank 0 on top:

    ┌────┬────┬──────┬─────────┐
    │ 0  │ 1  │ idle │    0    │   compute: one box per action, its micro-batch number inside
    └────┴────┴──────┴─────────┘
      ▬▬   ▬▬        ▬▬            one thin lane per communication stream

A step whose boxes would be narrower than their numbers is drawn whole in flat rows, and below in
three magnified windows (`scales.py`). Text costs about a millisecond each, so only boxes that have
room for their number get one, and none in a dense picture. Same timeline, same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch

from parsim.errors import InputError
from parsim.report.picture.grid import DPI, POINTS, Box, Grid
from parsim.report.picture.legend import Head, head_of, legend_of, text_inches
from parsim.report.picture.memory_panel import draw_memory
from parsim.report.picture.panel import fill_panel, panel_at
from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.picture.scales import (
    GAP_INCHES,
    LANE_NAMES_INCHES,
    ON_WHITE,
    Window,
    keep_clear,
    lane_names_inches,
    mark_end,
    mark_inside,
    window_inches,
    windows_of,
)
from parsim.report.picture.timeline_grid import ONE_ROW, lay_out, picture_end, row_names
from parsim.timelines.timeline import Span, Timeline

_FRAME: Final = "#202020"

# Inches.
_NARROWEST: Final = 3.0
_RIGHT: Final = 0.25  # half of the last tick's label
_AXIS: Final = 0.45
_MEMORY: Final = 1.7
_FLAT_ROW: Final = 0.22  # of the whole step, above its windows
_WINDOW_ROW: Final = 0.5
_ZOOM: Final = 0.62  # between the whole step and its windows: axis, lines to the windows, names


class _Asked(NamedTuple):
    """What a picture has beside its rows: memory's curves, the critical path, windows."""

    memory: bool
    critical: bool
    zoomed: bool


def draw_timeline(
    timeline: Timeline,
    *,
    path: Path | None = None,
    memory: bool = False,
    critical: bool = False,
    width: float = 14.0,
    title: str | None = None,
    until: float | None = None,
) -> Figure:
    """Draw a timeline, and save it where a path is given.

    The line under the title is made of what `timeline.meta` has of `plan`, `step_time_s`,
    `bubble_fraction`, `bubble_definition` and `peak_allocated_bytes` (a number, or one per rank);
    `rank_labels` replaces the numbers beside the rows. The arguments are those of `Timeline.plot`.

    Raises:
        InputError: nothing to draw, or the file cannot be written.
    """
    check_picture(path)
    if memory and not any(curve.times for curve in timeline.memory):
        raise InputError("cannot draw memory: the timeline has no memory curves; leave memory out")
    if critical and not timeline.critical:
        raise InputError(
            "cannot draw the critical path: the timeline has none; leave the critical path out"
        )
    asked = _Asked(memory=memory, critical=critical, zoomed=until is None)
    end = picture_end(timeline, until)
    with matplotlib.rc_context(STYLE):
        sheet = _lay_sheet(timeline, end, width, title or "", asked)
        figure = Figure(figsize=(width, sheet.height), dpi=DPI)
        sheet.head.draw(figure, sheet.left)
        whole = _draw_whole(figure, sheet)
        _draw_windows(figure, sheet, whole)
    save_picture(figure, path)
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sheet:
    """What stands where in a picture; lengths are inches from the figure's upper left corner."""

    timeline: Timeline
    names: Sequence[str]
    left: float
    grid: Grid
    boxes: Sequence[Box]
    critical: Sequence[Span]
    windows: Sequence[tuple[Window, Grid]]
    head: Head
    memory: bool

    @property
    def bottom(self) -> float:
        """End of the whole step's rows and the axis below them."""
        return self.head.height + self.grid.height_inches + _AXIS

    @property
    def below(self) -> float:
        """End of the memory's curves too, where they are drawn."""
        return self.bottom + _MEMORY + _AXIS if self.memory else self.bottom

    @property
    def height(self) -> float:
        """Height of the figure."""
        zoom = _ZOOM + self.windows[0][1].height_inches if self.windows else 0.0
        return self.below + zoom


def _lay_sheet(timeline: Timeline, end: float, width: float, title: str, asked: _Asked) -> _Sheet:
    """Lay out head, rows, memory panel and windows, with room for the names of their lanes."""
    laid = partial(_laid_beside, timeline, end, width, title, asked)
    sheet = laid(LANE_NAMES_INCHES)
    beside = max(map(lane_names_inches, (sheet.grid, *(grid for _, grid in sheet.windows))))
    return laid(beside) if beside > LANE_NAMES_INCHES else sheet


def _laid_beside(
    timeline: Timeline, end: float, width: float, title: str, asked: _Asked, beside: float
) -> _Sheet:
    """Lay out head, rows, memory panel and windows from top to bottom.

    The names of lanes need so many inches `beside` the rows.
    """
    names = row_names(timeline)
    left = _left_edge(names, width, beside)
    inches = width - left - _RIGHT
    windows = windows_of(timeline, inches) if asked.zoomed else ()
    one_row = _FLAT_ROW if windows else ONE_ROW
    grid = lay_out(timeline, column_inches=inches, end=end, one_row=one_row)
    boxes = grid.boxes(timeline.spans)
    return _Sheet(
        timeline=timeline,
        names=names,
        left=left,
        grid=grid,
        boxes=boxes,
        critical=[timeline.spans[i] for i in timeline.critical] if asked.critical else [],
        windows=[(window, _magnified(timeline, window, grid)) for window in windows],
        head=head_of(title, timeline.meta, legend_of(boxes, grid, asked.critical), inches),
        memory=asked.memory,
    )


def _magnified(timeline: Timeline, window: Window, whole: Grid) -> Grid:
    """The grid of a window, in the unit of the whole step."""
    return lay_out(
        timeline,
        column_inches=window_inches(whole.column_inches),
        start=window.start,
        end=window.end,
        unit_of=timeline.end,
        one_row=_WINDOW_ROW,
    )


def _left_edge(names: Sequence[str], width: float, beside: float) -> float:
    """Where the rows start, inches: the names of ranks and lanes need room beside them."""
    left = 0.45 + max(text_inches(max(names, key=len), POINTS) * 1.1, beside)
    if width < left + _NARROWEST:
        raise InputError(
            f"width={width} inches has no room beside the names of the ranks; "
            f"allowed: at least {left + _NARROWEST:.1f}"
        )
    return left


def _draw_whole(figure: Figure, sheet: _Sheet) -> Axes:
    """Draw the whole step, above its memory where that is asked for; returns its rows."""
    grid, top = sheet.grid, sheet.head.height
    whole = axes = panel_at(figure, grid, sheet.left, top, grid.height_inches)
    fill_panel(axes, grid, sheet.boxes, sheet.names, sheet.critical)
    if sheet.memory:
        axes.tick_params(labelbottom=False)
        axes = panel_at(figure, grid, sheet.left, sheet.bottom, _MEMORY, above=axes)
        capacity = sheet.timeline.meta.get("capacity_bytes")
        draw_memory(axes, sheet.timeline.memory, grid, capacity)
    mark_end(axes, grid)
    axes.set_xlabel(f"time [{grid.unit}]", labelpad=2)
    keep_clear(axes)
    return whole


def _draw_windows(figure: Figure, sheet: _Sheet, whole: Axes) -> None:
    """Draw the windows side by side, each joined with its frame in the whole step."""
    top = sheet.below + _ZOOM - _AXIS
    for number, (window, part) in enumerate(sheet.windows):
        left = sheet.left + number * (part.column_inches + GAP_INCHES)
        panel = panel_at(figure, part, left, top, part.height_inches)
        beside = sheet.names if number == 0 else []
        fill_panel(panel, part, part.boxes(sheet.timeline.spans), beside, sheet.critical)
        mark_inside(panel, part)
        panel.set_title(
            window.name, loc="left", fontsize=POINTS + 1, weight="bold", pad=5, bbox=ON_WHITE
        )
        _draw_zoom(figure, whole, panel, part, joined=not sheet.memory)


def _draw_zoom(figure: Figure, whole: Axes, panel: Axes, part: Grid, *, joined: bool) -> None:
    """Frame a window in the whole step, and join the frame's corners with the window's."""
    look: dict[str, Any] = {"color": _FRAME, "linewidth": 0.9}
    whole.axvspan(part.start, part.end, fill=False, clip_on=False, zorder=5, **look)
    bottom = len(part.rows)
    for x in (part.start, part.end) if joined else ():
        ends: dict[str, Any] = {"xyA": (x, bottom), "xyB": (x, 0.0)}
        frames: dict[str, Any] = {"coordsA": whole.transData, "coordsB": panel.transData}
        line = ConnectionPatch(
            **ends, **frames, color=_FRAME, linewidth=0.5, linestyle=":", zorder=-1
        )
        figure.add_artist(line)
