"""The staircases of many schedules on one page, side by side, on one scale of time.

    gpipe   bubble 30.4 %          1f1b   bubble 30.4 %
    ▓▓▓▓▓▓▓▓      ░░░░░░░░         ▓▓▓▓▓░▓░▓░▓░▓░░░░
      ▓▓▓▓▓▓▓▓  ░░░░░░░░             ▓▓▓░▓░▓░▓░▓░▓░░
    ├──────────── time ──┤         ├──────────── time ──┤

All panels end at the same time, so that a longer schedule looks longer. They end with the longest
of those that take at most `_LONGEST` times the shortest; the others are cut, and say so.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from parsim.report.picture import colours
from parsim.report.picture.grid import DPI, POINTS, Box, Grid, readable_unit
from parsim.report.picture.legend import head_of, legend_of
from parsim.report.picture.panel import fill_panel, panel_at
from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.picture.timeline_grid import lay_out, picture_end
from parsim.report.text.schedules import UNIT, ends
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.schedules.rows import ScheduleRow, ScheduleTable
from parsim.timelines.timeline import Timeline
from parsim.units import format_bytes, percent

_LONGEST: Final = 1.5
_BESIDE: Final = 2
"""Panels side by side."""

# Inches.
_COLUMN: Final = 8.7
_LEFT: Final = 0.42
_GAP: Final = 0.45
_RIGHT: Final = 0.25
_TITLE: Final = 0.36  # above a panel
_TICKS: Final = 0.26  # below it
_BOTTOM: Final = 0.08
_SHORT_ROW: Final = 0.165


class _Panel(NamedTuple):
    """Name and figures above a panel, and what it draws; numbers are versions where `versioned`."""

    name: str
    figures: str
    timeline: Timeline
    versioned: bool = False


def draw_staircases(
    compared: ScheduleTable,
    *,
    path: Path | None = None,
    until: float | None = None,
) -> Figure:
    """Draw one panel a schedule, and save the page where a path is given.

    Args:
        compared: the schedules, with their timelines.
        path: a `.png` or `.svg` file.
        until: end of all panels, in the table's unit.

    Raises:
        InputError: there is nothing to draw until then, or the file cannot be written.
    """
    check_picture(path)
    end = _end(compared, until)
    with matplotlib.rc_context(STYLE):
        figure = _compose(compared, end)
    save_picture(figure, path)
    return figure


def _end(compared: ScheduleTable, until: float | None) -> float:
    """End of all panels: as asked, or that of the longest schedule that is not far too long."""
    rows = compared.rows or compared.asynchronous
    lengths = [picture_end(row.timeline, until) for row in rows]
    return max(length for length in lengths if length <= _LONGEST * min(lengths))


def _compose(compared: ScheduleTable, end: float) -> Figure:
    """Panels beside and below one another on one scale, with one head and legend."""
    panels = _panels(compared, end)
    columns = min(_BESIDE, len(panels))
    grids = [_grid(panel, end, compared.unit) for panel in panels]
    tall = grids[0].height_inches
    each, lines = tall + _TITLE + _TICKS, -(-len(grids) // columns)
    width = _LEFT + columns * _COLUMN + (columns - 1) * _GAP + _RIGHT
    drawn = [grid.boxes(panel.timeline.spans) for grid, panel in zip(grids, panels, strict=True)]
    deepest = max(grids, key=lambda grid: grid.chunk_count)
    legend = legend_of([*chain.from_iterable(drawn)], deepest, critical=False)
    legend.setdefault("idle", Patch(facecolor=colours.IDLE, linewidth=0.0))
    inches = width - _LEFT - _RIGHT
    head = head_of(compared.title, {"plan": _caption(compared, end)}, legend, inches)
    figure = Figure(figsize=(width, head.height + lines * each + _BOTTOM), dpi=DPI)
    head.draw(figure, _LEFT)
    for number, (panel, grid) in enumerate(zip(panels, grids, strict=True)):
        line, column = divmod(number, columns)
        left = _LEFT + column * (_COLUMN + _GAP)
        axes = panel_at(figure, grid, left, head.height + line * each + _TITLE, tall)
        _draw_panel(axes, panel, grid, drawn[number])
    return figure


def _draw_panel(axes: Axes, panel: _Panel, grid: Grid, boxes: list[Box]) -> None:
    """Draw one staircase with its title; nothing behind its end."""
    names = [str(rank) for rank in panel.timeline.ranks]
    fill_panel(axes, grid, boxes, names)
    axes.set_ylabel("")
    axes.axvspan(panel.timeline.end * grid.per_second, grid.end, color="white", zorder=2)
    _write_title(axes, panel, grid)


def _panels(compared: ScheduleTable, end: float) -> list[_Panel]:
    """What each panel shows, pipelines without flush behind the others."""
    unit, per_second = ("units", 1.0) if compared.unit == "unit" else readable_unit(end)
    panels = []
    for row in compared.rows:
        name = row.name + (f"  v={row.v}" if row.v > 1 else "")
        panels.append(_Panel(name, _figures(row, unit, per_second), row.timeline))
    for late in compared.asynchronous:
        figures = (
            f"{late.steady * per_second:.4g} {unit} a micro-batch",
            f"weights x {ends(late.versions)}",
            f"{ends(late.delays)} updates late",
            "numbers: versions of weights",
        )
        panels.append(_Panel(late.name, " · ".join(figures), late.timeline, versioned=True))
    return panels


def _grid(panel: _Panel, end: float, unit: str) -> Grid:
    """The rows of one panel; units are drawn as they are, seconds in what suits their length.

    Versions are numbers wherever one has room, micro-batches where all have.
    """
    grid = lay_out(
        panel.timeline,
        column_inches=_COLUMN,
        end=end,
        unit_of=1.0 if unit == "unit" else end,
        one_row=_SHORT_ROW,
    )
    return replace(grid, all_labels=not panel.versioned)


def _caption(compared: ScheduleTable, end: float) -> str:
    """What the numbers above the panels mean."""
    unit = UNIT if compared.unit == "unit" else "time in " + readable_unit(end)[0]
    return (
        f"{unit}; bubble: idle share, mean over ranks; holds: micro-batches whose activations are "
        f"kept at once, on the fullest and the emptiest rank; all panels on one scale"
    )


def _write_title(axes: Axes, panel: _Panel, grid: Grid) -> None:
    """The name to the left, its figures to the right, and three dots where a panel is cut."""
    axes.set_title(panel.name, loc="left", fontsize=POINTS + 2, weight="bold", pad=4)
    axes.set_title(panel.figures, loc="right", fontsize=POINTS, color="#404040", pad=4)
    if panel.timeline.end * grid.per_second > grid.end * (1 + 1e-9):
        right: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "clip_on": False}
        axes.text(1.004, 0.5, "…", size=POINTS + 4, **right)


def _figures(row: ScheduleRow, unit: str, per_second: float) -> str:
    """Time, bubble, what is held, and of a plan also the step's time and memory."""
    length = f"{row.makespan * per_second:.4g} {unit}"
    parts = [length, f"bubble {percent(row.bubble_fraction)}", f"holds {ends(row.activations)}"]
    if max(row.weights) > 1:
        parts.append(f"weights x {ends(row.weights)}")
    if row.in_seconds is not None:
        peak = f"peak {format_bytes(row.in_seconds.peak_allocated)}"
        fits = row.in_seconds.fit == Fit.FITS
        parts.append(peak if fits else f"{peak}, {row.in_seconds.fit}")
    return " · ".join(parts)
