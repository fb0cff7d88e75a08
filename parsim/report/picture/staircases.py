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
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from parsim.report.picture import colours
from parsim.report.picture.gantt import fill_panel, panel_at
from parsim.report.picture.grid import (
    DPI,
    POINTS,
    Grid,
    lay_out,
    picture_end,
    readable_unit,
    row_names,
)
from parsim.report.picture.legend import head_of, legend_of
from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.text.schedules import UNIT, ends
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.schedules.table import ScheduleRow, ScheduleTable
from parsim.units import format_bytes

_LONGEST: Final = 1.5

# Inches.
_COLUMN: Final = 8.7
_LEFT: Final = 0.42
_GAP: Final = 0.45
_RIGHT: Final = 0.25
_TITLE: Final = 0.36  # above a panel
_TICKS: Final = 0.26  # below it
_BOTTOM: Final = 0.08
_SHORT_ROW: Final = 0.165
_TALLEST: Final = 1.8


def draw_staircases(
    compared: ScheduleTable,
    *,
    path: Path | None = None,
    until: float | None = None,
    columns: int = 2,
) -> Figure:
    """Draw one panel a schedule, and save the page where a path is given.

    Args:
        compared: the schedules, with their timelines.
        path: a `.png` or `.svg` file.
        until: end of all panels, in the table's unit.
        columns: panels side by side.

    Raises:
        InputError: there is nothing to draw until then, or the file cannot be written.
    """
    check_picture(path)
    end = _end(compared, until)
    with matplotlib.rc_context(STYLE):
        figure = _compose(compared, end, min(columns, len(compared.rows)))
    save_picture(figure, path)
    return figure


def _end(compared: ScheduleTable, until: float | None) -> float:
    """End of all panels: as asked, or that of the longest schedule that is not far too long."""
    lengths = [picture_end(row.timeline, until) for row in compared.rows]
    return max(length for length in lengths if length <= _LONGEST * min(lengths))


def _compose(compared: ScheduleTable, end: float, columns: int) -> Figure:
    grids = [_grid(row, end, compared.unit) for row in compared.rows]
    tall = grids[0].height_inches
    each, lines = tall + _TITLE + _TICKS, -(-len(grids) // columns)
    width = _LEFT + columns * _COLUMN + (columns - 1) * _GAP + _RIGHT
    drawn = [grid.boxes(row.timeline.spans) for grid, row in zip(grids, compared.rows, strict=True)]
    deepest = max(grids, key=lambda grid: grid.chunk_count)
    legend = legend_of([*chain.from_iterable(drawn)], deepest, critical=False)
    legend.setdefault("idle", Patch(facecolor=colours.IDLE, linewidth=0.0))
    inches = width - _LEFT - _RIGHT
    head = head_of(compared.title, {"plan": _caption(compared, end)}, legend, inches)
    figure = Figure(figsize=(width, head.height + lines * each + _BOTTOM), dpi=DPI)
    head.draw(figure, _LEFT)
    for number, (row, grid) in enumerate(zip(compared.rows, grids, strict=True)):
        line, column = divmod(number, columns)
        left = _LEFT + column * (_COLUMN + _GAP)
        axes = panel_at(figure, grid, left, head.height + line * each + _TITLE, tall)
        fill_panel(axes, grid, drawn[number], row_names(row.timeline))
        axes.set_ylabel("")
        axes.axvspan(row.makespan * grid.per_second, grid.end, color="white", zorder=2)
        _write_title(axes, row, grid, compared.unit)
    return figure


def _grid(row: ScheduleRow, end: float, unit: str) -> Grid:
    """The rows of one panel; units are drawn as they are, seconds in what suits their length."""
    grid = lay_out(
        row.timeline,
        column_inches=_COLUMN,
        end=end,
        unit_of=1.0 if unit == "unit" else end,
        one_row=_SHORT_ROW,
    )
    return replace(grid, all_labels=True)


def _caption(compared: ScheduleTable, end: float) -> str:
    """What the numbers above the panels mean."""
    unit = UNIT if compared.unit == "unit" else "time in " + readable_unit(end)[0]
    return (
        f"{unit}; bubble: idle share, mean over ranks; holds: micro-batches whose activations are "
        f"kept at once, on the fullest and the emptiest rank; all panels on one scale"
    )


def _write_title(axes: Axes, row: ScheduleRow, grid: Grid, unit: str) -> None:
    """The name to the left, its figures to the right, and three dots where a panel is cut."""
    name = row.name + (f"  v={row.v}" if row.v > 1 else "")
    axes.set_title(name, loc="left", fontsize=POINTS + 2, weight="bold", pad=4)
    axes.set_title(_figures(row, unit, grid), loc="right", fontsize=POINTS, color="#404040", pad=4)
    if row.makespan * grid.per_second > grid.end * (1 + 1e-9):
        right: dict[str, Any] = {"transform": axes.transAxes, "va": "center", "clip_on": False}
        axes.text(1.004, 0.5, "…", size=POINTS + 4, **right)


def _figures(row: ScheduleRow, unit: str, grid: Grid) -> str:
    """Time, bubble, what is held, and of a plan also the step's time and memory."""
    length = f"{row.makespan * grid.per_second:.4g} {'units' if unit == 'unit' else grid.unit}"
    parts = [length, f"bubble {100 * row.bubble_fraction:.1f} %", f"holds {ends(row.activations)}"]
    if max(row.weights) > 1:
        parts.append(f"weights x {ends(row.weights)}")
    if row.in_seconds is not None:
        peak = f"peak {format_bytes(row.in_seconds.peak_allocated)}"
        fits = row.in_seconds.fit == Fit.FITS
        parts.append(peak if fits else f"{peak}, {row.in_seconds.fit}")
    return " · ".join(parts)
