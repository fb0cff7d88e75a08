"""What is written in a timeline's picture: headline, caption, legend, names and numbers in rows.

Texts are measured before they are placed: what is too long for the picture goes on the next line,
the rows start below the last one, and a box too narrow for its number has none.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import Normal, Stroke
from matplotlib.textpath import text_to_path
from matplotlib.typing import ColorType

from parsim.report.picture import colours
from parsim.report.picture.grid import DPI, POINTS, Box, Grid, readable_unit
from parsim.units import GIB, percent

FONT: Final = "DejaVu Sans"
"""Comes with matplotlib: the same everywhere."""

LEGEND: Final[Mapping[str, Any]] = {
    "loc": "upper left",
    "frameon": False,
    "fontsize": POINTS,
    "handlelength": 2.0,
    "handletextpad": 0.5,
    "columnspacing": 1.4,
    "borderpad": 0.0,
    "borderaxespad": 0.0,
}
"""How legends look: arguments for matplotlib."""

_BOLD: Final = 13.5  # 12 point bold letters are as wide as these
_FULL: Final = 1.0 - 1e-9
_APART: Final = 0.21  # of a box, from its middle to the middle of either line in it

# Inches.
_EDGE: Final = 0.15
_TITLE: Final = 0.27
LINE: Final = 0.175
_GAP: Final = 0.08
_LEGEND_ROW: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Lines of headline and caption, and the legend's handles by text in so many columns."""

    headline: Sequence[str]
    caption: Sequence[str]
    legend: Mapping[str, Any]
    columns: int

    @property
    def caption_top(self) -> float:
        """Distance of the caption from the picture's upper edge, inches."""
        return _EDGE + _TITLE * len(self.headline)

    @property
    def legend_top(self) -> float:
        """Distance of the legend from the picture's upper edge, inches."""
        return self.caption_top + LINE * len(self.caption) + (_GAP if self.caption else 0.0)

    @property
    def height(self) -> float:
        """Distance of what comes below the head from the picture's upper edge, inches."""
        return self.legend_top + _LEGEND_ROW * -(-len(self.legend) // self.columns) + _GAP

    def draw(self, figure: Figure, left: float) -> None:
        """Write all three, `left` inches from the picture's left edge."""
        width, height = figure.get_size_inches()
        x = left / width
        headline, caption = "\n".join(self.headline), "\n".join(self.caption)
        figure.text(x, 1 - _EDGE / height, headline, size=12, weight="bold", va="top")
        figure.text(x, 1 - self.caption_top / height, caption, color="#404040", va="top")
        figure.legend(
            list(self.legend.values()),
            list(self.legend),
            ncols=self.columns,
            bbox_to_anchor=(x, 1 - self.legend_top / height),
            handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
            **LEGEND,
        )


def head_of(title: str, meta: Mapping[str, Any], legend: Mapping[str, Any], inches: float) -> Head:
    """The head of a picture whose rows are so many inches wide; `meta` is the timeline's."""
    return Head(
        headline=_wrapped(title, inches, _BOLD),
        caption=_wrapped(_caption(meta), inches, POINTS),
        legend=legend,
        columns=_columns(list(legend), inches),
    )


def legend_of(boxes: Sequence[Box], grid: Grid, critical: bool) -> dict[str, Any]:
    """Handles by text: the looks that occur in palette order, then what is drawn over them."""
    present = {box.look for box in boxes}
    ordered = [look for look in dict.fromkeys(colours.LOOKS.values()) if look in present]
    ordered += sorted(present - set(ordered))
    legend: dict[str, Any] = {look.label: _swatch(look.colour, look.hatch) for look in ordered}
    if grid.chunk_count > 1:
        shades = [colours.shade("#404040", i, grid.chunk_count) for i in range(grid.chunk_count)]
        legend[f"chunk 0 .. {grid.chunk_count - 1}"] = tuple(_swatch(s) for s in shades)
    waits = grid.waits(boxes)
    if waits or any(box.waits for box in boxes):
        legend["exposed communication"] = Patch(
            facecolor=colours.EXPOSED_FILL, edgecolor=colours.EXPOSED, hatch="/////", linewidth=0
        )
    busy = sum(box.right - box.left for box in boxes if box.span.stream == "compute")
    busy += sum(right - left for left, right, *_ in waits)
    if busy < _FULL * grid.end * len(grid.rows):
        legend["idle"] = _swatch(colours.IDLE)
    if grid.versions:
        legend["v0, v1: version of the weights"] = Line2D([], [], linestyle="none")
    if critical:
        legend["critical path"] = Line2D([], [], color=colours.PATH, linewidth=1.4)
    return legend


def draw_labels(axes: Axes, grid: Grid, boxes: Sequence[Box]) -> None:
    """Write their micro-batch numbers into the boxes that have room."""
    for label in grid.labels(boxes, _text_pixels):
        box, (version, size) = label.box, grid.version_of(label, _text_pixels)
        middle = (box.top + box.bottom) / 2
        shift = _APART * (box.bottom - box.top) if version else 0.0
        _write(axes, box, label.text, middle - shift, label.points)
        if version:
            _write(axes, box, version, middle + shift, size)


def _write(axes: Axes, box: Box, text: str, y: float, points: float) -> None:
    """A text in a box, around so far from the top of the rows."""
    halo = [Stroke(linewidth=2.0, foreground=box.fill), Normal()]
    axes.text(
        (box.left + box.tail) / 2,
        y,
        text,
        size=points,
        color=colours.ink(box.fill),
        ha="center",
        va="center_baseline",
        clip_on=True,
        path_effects=halo if box.look.hatch else None,
    )


def _swatch(colour: ColorType, hatch: str = "") -> Patch:
    return Patch(facecolor=colour, edgecolor="white", linewidth=0.0, hatch=hatch or None)


def _columns(names: Sequence[str], inches: float) -> int:
    """Columns for the fewest rows in which the legend's texts fit, all rows about as full."""
    size = LEGEND["fontsize"]
    around = (2.0 + 0.5 + 1.4) * size / 72  # swatch, its gap, the gap between columns
    for rows in range(1, len(names)):
        columns = -(-len(names) // rows)
        groups = [list(group) for group in np.array_split(np.asarray(names), columns)]
        if sum(max(text_inches(n, size) for n in g) + around for g in groups) <= inches:
            return columns
    return 1


def _caption(meta: Mapping[str, Any]) -> str:
    parts = [str(meta["plan"])] if meta.get("plan") else []
    if meta.get("step_time_s") is not None:
        unit, per_second = readable_unit(meta["step_time_s"])
        parts.append(f"step time {meta['step_time_s'] * per_second:.4g} {unit}")
    if meta.get("bubble_fraction") is not None:
        of = f" ({meta['bubble_definition']})" if meta.get("bubble_definition") else ""
        parts.append(f"bubble {percent(meta['bubble_fraction'])}{of}")
    if meta.get("peak_allocated_bytes") is not None:
        peak = np.max(meta["peak_allocated_bytes"]) / GIB
        parts.append(f"peak allocated {peak:.1f} GiB")
    return " · ".join(parts)


def _wrapped(text: str, inches: float, points: float) -> list[str]:
    """The text in lines that fit, but for words that are longer than a line."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_inches(f"{lines[-1]} {word}", points) < 0.95 * inches:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


@functools.lru_cache(maxsize=1024)
def text_inches(text: str, points: float) -> float:
    """Width of a text."""
    font = FontProperties(family=[FONT], size=points)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


def _text_pixels(text: str, points: float) -> float:
    """Width of a label with a little air; its letters bring some of their own."""
    return text_inches(text, points) * DPI + 1.0
