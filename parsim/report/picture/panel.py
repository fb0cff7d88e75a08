"""The rows of a picture on axes of their own: boxes, what waits behind them, a path through them.

One collection of polygons draws all boxes that look alike: 8,192 boxes as single artists would take
ten times as long. Tens of thousands of boxes are pixels in an SVG too, between axes and texts that
stay lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patheffects import Normal, Stroke

from parsim.report.picture import colours
from parsim.report.picture.colours import Look
from parsim.report.picture.grid import Box, Edges, Grid
from parsim.report.picture.legend import draw_labels
from parsim.report.picture.scales import name_lanes, name_rows
from parsim.timelines.timeline import Span

_VECTOR_BOXES: Final = 20_000  # more would make the SVG larger than 4 MB
_SNAP_PX: Final = 4.0  # thinner boxes are not moved to whole pixels
_EDGED_PX: Final = 5.0  # in narrower ones the white edge would hide the colour


def panel_at(
    figure: Figure, grid: Grid, left: float, top: float, tall: float, above: Axes | None = None
) -> Axes:
    """Axes as wide as the rows; all lengths are inches, from the figure's upper left corner."""
    width, height = figure.get_size_inches()
    corner = (left / width, 1 - top / height - tall / height, grid.column_inches / width)
    return figure.add_axes((*corner, tall / height), sharex=above)


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
