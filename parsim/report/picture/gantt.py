"""The picture of a timeline: ranks as rows, true time to the right, grey where a rank idles.

Each rank's row, rank 0 on top:

    ┌────┬────┬──────┬─────────┐
    │ 0  │ 1  │ idle │    0    │   compute: one box per action, its micro-batch number inside
    └────┴────┴──────┴─────────┘
      ▬▬   ▬▬        ▬▬            one thin lane per communication stream

A step whose boxes would be narrower than their numbers is drawn whole in flat rows, and below in
three magnified windows (`scales.py`). One collection of polygons draws all boxes that look alike:
8,192 boxes as single artists would take ten times as long. Text costs about a millisecond each, so
only boxes that have room for their number get one, and none in a dense picture. Tens of thousands
of boxes are pixels in an SVG too, between axes and texts that stay lines. Same timeline, same
bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from matplotlib.patheffects import Normal, Stroke

from parsim.errors import InputError
from parsim.report.picture import colours
from parsim.report.picture.colours import Look
from parsim.report.picture.grid import (
    DPI,
    ONE_ROW,
    POINTS,
    Box,
    Edges,
    Grid,
    lay_out,
    picture_end,
    row_names,
)
from parsim.report.picture.legend import draw_labels, head_of, legend_of, text_inches
from parsim.report.picture.memory_panel import draw_memory
from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.picture.scales import (
    GAP_INCHES,
    LANE_NAMES_INCHES,
    Window,
    mark_end,
    mark_inside,
    name_lanes,
    name_rows,
    window_inches,
    windows_of,
)
from parsim.timelines.timeline import Span, Timeline

_VECTOR_BOXES: Final = 20_000  # more would make the SVG larger than 4 MB
_SNAP_PX: Final = 4.0  # thinner boxes are not moved to whole pixels
_FRAME: Final = "#202020"
_WHITE: Final = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
_EDGED_PX: Final = 5.0  # in narrower ones the white edge would hide the colour

# Inches.
_NARROWEST: Final = 3.0
_RIGHT: Final = 0.25  # half of the last tick's label
_AXIS: Final = 0.45
_MEMORY: Final = 1.7
_FLAT_ROW: Final = 0.22  # of the whole step, above its windows
_WINDOW_ROW: Final = 0.5
_ZOOM: Final = 0.62  # between the whole step and its windows: axis, lines to the windows, names


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
    end = picture_end(timeline, until)
    with matplotlib.rc_context(STYLE):
        zoomed = until is None
        figure = _compose(timeline, end, width, title or "", memory, critical, zoomed=zoomed)
    save_picture(figure, path)
    return figure


def _compose(
    timeline: Timeline,
    end: float,
    width: float,
    title: str,
    memory: bool,
    critical: bool,
    *,
    zoomed: bool,
) -> Figure:
    """Lay out head, rows, memory panel and windows from top to bottom, and fill them."""
    names = row_names(timeline)
    left = _left_edge(names, width)
    inches = width - left - _RIGHT
    windows = windows_of(timeline, inches) if zoomed else ()
    one_row = _FLAT_ROW if windows else ONE_ROW
    grid = lay_out(timeline, column_inches=inches, end=end, one_row=one_row)
    grids = [_magnified(timeline, window, grid) for window in windows]
    boxes = grid.boxes(timeline.spans)
    on_path = [timeline.spans[number] for number in timeline.critical] if critical else []
    head = head_of(title, timeline.meta, legend_of(boxes, grid, critical), grid.column_inches)
    bottom = head.height + grid.height_inches + _AXIS
    below = bottom + _MEMORY + _AXIS if memory else bottom
    zoom = _ZOOM + grids[0].height_inches if grids else 0.0
    figure = Figure(figsize=(width, below + zoom), dpi=DPI)
    head.draw(figure, left)
    whole = axes = panel_at(figure, grid, left, head.height, grid.height_inches)
    fill_panel(axes, grid, boxes, names, on_path)
    if memory:
        axes.tick_params(labelbottom=False)
        axes = panel_at(figure, grid, left, bottom, _MEMORY, above=axes)
        draw_memory(axes, timeline.memory, grid, timeline.meta.get("capacity_bytes"))
    mark_end(axes, grid)
    axes.set_xlabel(f"time [{grid.unit}]", labelpad=2)
    for number, (window, part) in enumerate(zip(windows, grids, strict=True)):
        start = left + number * (part.column_inches + GAP_INCHES)
        panel = panel_at(figure, part, start, below + _ZOOM - _AXIS, part.height_inches)
        magnified = part.boxes(timeline.spans)
        beside = names if number == 0 else []
        fill_panel(panel, part, magnified, beside, on_path)
        mark_inside(panel, part)
        panel.set_title(
            window.name, loc="left", fontsize=POINTS + 1, weight="bold", pad=5, bbox=_WHITE
        )
        _draw_zoom(figure, whole, panel, part, joined=not memory)
    return figure


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


def fill_panel(
    axes: Axes,
    grid: Grid,
    boxes: Sequence[Box],
    names: Sequence[str],
    critical: Sequence[Span] = (),
) -> None:
    """Draw the rows of the whole step or of a window, with what is written in them."""
    _draw_rows(axes, grid, boxes)
    draw_labels(axes, grid, boxes)
    if names:
        name_rows(axes, grid, names)
        name_lanes(axes, grid)
    else:
        axes.set_yticks([])
    axes.spines[["top", "left", "right"]].set_visible(False)
    if critical:
        _draw_critical(axes, grid, critical)


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


def _left_edge(names: Sequence[str], width: float) -> float:
    """Where the rows start, inches: the names of the ranks need room beside them."""
    left = 0.45 + max(text_inches(max(names, key=len), POINTS) * 1.1, LANE_NAMES_INCHES)
    if width < left + _NARROWEST:
        raise InputError(
            f"width={width} inches has no room beside the names of the ranks; "
            f"allowed: at least {left + _NARROWEST:.1f}"
        )
    return left


def panel_at(
    figure: Figure, grid: Grid, left: float, top: float, tall: float, above: Axes | None = None
) -> Axes:
    """Axes as wide as the rows; all lengths are inches, from the figure's upper left corner."""
    width, height = figure.get_size_inches()
    corner = (left / width, 1 - top / height - tall / height, grid.column_inches / width)
    return figure.add_axes((*corner, tall / height), sharex=above)


def _draw_rows(axes: Axes, grid: Grid, boxes: Sequence[Box]) -> None:
    """Idle background and what waits there, then the boxes of each look, their exposed tails."""
    axes.set_xlim(grid.start, grid.end)
    axes.set_ylim(len(grid.rows), 0.0)
    _draw_background(axes, grid)
    _draw_exposed(axes, grid, grid.waits(boxes))
    by_look: dict[tuple[Look, str], list[Box]] = {}
    for box in boxes:
        by_look.setdefault((box.look, box.span.stream), []).append(box)
    for (look, stream), alike in by_look.items():
        _draw_alike(axes, grid, alike, look, stream)
    _draw_exposed(axes, grid, [(b.tail, b.right, b.top, b.bottom) for b in boxes if b.waits])
    if len(boxes) > _VECTOR_BOXES:
        for collection in axes.collections:
            collection.set_rasterized(True)


def _draw_background(axes: Axes, grid: Grid) -> None:
    for top, bottom in sorted(set(grid.lanes.values())):
        colour = colours.IDLE if top < 0.5 else colours.QUIET_LANE
        lanes = [(grid.start, grid.end, row + top, row + bottom) for row in grid.rows.values()]
        axes.add_collection(_rectangles(lanes, {"facecolors": colour, "linewidths": 0.0}))


def _draw_alike(axes: Axes, grid: Grid, boxes: Sequence[Box], look: Look, stream: str) -> None:
    """Boxes of one look on one stream."""
    room = float(np.median([grid.pixels(box) for box in boxes]))
    edged = stream == "compute" and room > _EDGED_PX
    style = {
        "facecolors": [box.fill for box in boxes],
        "edgecolors": "white",
        "linewidths": 0.5 if edged else 0.0,
        "hatch": look.hatch or None,
        # boxes thinner than a pixel tint it by their share instead of taking it or vanishing
        "snap": None if room > _SNAP_PX else False,
    }
    axes.add_collection(_rectangles([box[1:5] for box in boxes], style))


def _draw_exposed(axes: Axes, grid: Grid, parts: Sequence[Edges]) -> None:
    """Hatch the parts of the compute lane that wait for communication."""
    if parts:
        style = {
            "facecolors": colours.EXPOSED_FILL,
            "edgecolors": colours.EXPOSED,
            "linewidths": 0.0,
            "hatch": None if grid.dense else "/////",
            "snap": False if grid.dense else None,
        }
        axes.add_collection(_rectangles(parts, style))


def _rectangles(edges: Sequence[tuple[float, ...]], style: dict[str, Any]) -> PolyCollection:
    """One collection of rectangles given as left, right, top, bottom."""
    left, right, top, bottom = np.asarray(edges, dtype=float).T
    x = np.stack([left, right, right, left], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    corners: Any = np.stack([x, y], axis=2)  # an array is read at once, a list one by one
    return PolyCollection(corners, **style)


def _draw_critical(axes: Axes, grid: Grid, critical: Sequence[Span]) -> None:
    """A line through each span on the critical path, from start to end, below the labels."""
    axes.plot(
        *grid.path(critical),
        color=colours.PATH,
        linewidth=1.4,
        solid_joinstyle="round",
        path_effects=[Stroke(linewidth=3.2, foreground="white", alpha=0.8), Normal()],
    )
