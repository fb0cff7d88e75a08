"""The picture of a timeline: ranks as rows, true time to the right, grey where a rank idles.

Each rank's row, rank 0 on top:

    ┌────┬────┬──────┬─────────┐
    │ 0  │ 1  │ idle │    0    │   compute: one box per action, its micro-batch number inside
    └────┴────┴──────┴─────────┘
      ▬▬   ▬▬        ▬▬            one thin lane per communication stream

One collection of polygons draws all boxes that look alike: 8,192 boxes as single artists would
take ten times as long. Text costs about a millisecond each, so only boxes that have room for
their number get one, and none in a dense picture. Same timeline, same bytes.
"""

from __future__ import annotations

import functools
import io
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import Normal, Stroke
from matplotlib.textpath import text_to_path
from matplotlib.typing import ColorType

from parsim.errors import InputError
from parsim.report import colours
from parsim.report.colours import Look
from parsim.report.trace import rank_labels
from parsim.timeline import STREAMS, MemoryCurve, Span, Timeline

SUFFIXES: Final = (".png", ".svg")

_DPI: Final = 120
_POINTS: Final = 9.0
_BOLD: Final = 13.5  # 12 point bold letters are as wide as these

_STYLE: Final[Any] = {  # Any, for matplotlib's stubs differ from release to release
    "svg.hashsalt": "parsim",
    "svg.fonttype": "path",
    "font.family": ["DejaVu Sans"],  # comes with matplotlib: the same everywhere
    "font.size": _POINTS,
    "hatch.linewidth": 0.7,
    "text.parse_math": False,  # a plan's name may hold a $
    "axes.linewidth": 0.6,
}
_NO_DATES: Final = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None, "Format": None, "Type": None},
}
_GIB: Final = 2.0**30
_FULL: Final = 1.0 - 1e-9

_LABEL_PX: Final = 12.0  # narrower boxes hold no readable digit
_LABEL_POINTS: Final = 5.5
_SNAP_PX: Final = 4.0  # thinner boxes are not moved to whole pixels
_EDGED_PX: Final = 5.0  # in narrower ones the white edge would hide the colour
_DENSE_RANKS: Final = 64
_DENSE_BOXES: Final = 2000
_FEW_CURVES: Final = 8

# Inches.
_EDGE: Final = 0.15
_NARROWEST: Final = 3.0
_RIGHT: Final = 0.25  # half of the last tick's label
_TITLE: Final = 0.27
_LINE: Final = 0.175
_LEGEND_ROW: Final = 0.2
_AXIS: Final = 0.45
_MEMORY: Final = 1.7
_ONE_ROW: Final = 0.6
_ALL_ROWS: Final = 8.0
_SHARED_LANE: Final = 0.3

_LEGEND: Final[Mapping[str, Any]] = {
    "loc": "upper left",
    "frameon": False,
    "fontsize": _POINTS,
    "handlelength": 2.0,
    "handletextpad": 0.5,
    "columnspacing": 1.4,
    "borderpad": 0.0,
    "borderaxespad": 0.0,
}


class _Box(NamedTuple):
    """A span and its rectangle in the axes' units; from `tail` on it waits for communication."""

    span: Span
    left: float
    right: float
    top: float
    bottom: float
    tail: float
    fill: colours.RGB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    """Where spans lie: row of a rank, lane of a stream in a row, time in the axis' unit."""

    rows: Mapping[int, int]
    lanes: Mapping[str, tuple[float, float]]
    chunks: Mapping[tuple[int, int], int]
    end: float
    unit: str
    per_second: float
    row_inches: float
    column_inches: float
    dense: bool

    @property
    def chunk_count(self) -> int:
        """Most chunks that any rank holds."""
        return 1 + max(self.chunks.values(), default=0)

    def box(self, span: Span) -> _Box:
        """Rectangle of a span, cut at the picture's end."""
        row = self.rows[span.rank]
        top, bottom = self.lanes[span.stream]
        chunk = self.chunks.get((span.rank, span.stage), 0) if _is_chunked(span) else 0
        exposed = span.exposed if span.stream == "compute" else 0.0
        right = min(span.end * self.per_second, self.end)
        return _Box(
            span,
            span.start * self.per_second,
            right,
            row + top,
            row + bottom,
            min(max(span.start, span.end - exposed) * self.per_second, right),
            colours.shade(_look(span).colour, chunk, self.chunk_count),
        )

    def pixels(self, box: _Box) -> float:
        """Width of the part of a box that has room for a label."""
        return (box.tail - box.left) / self.end * self.column_inches * _DPI


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
    `rank_labels` replaces the numbers beside the rows.

    Args:
        timeline: What to draw.
        path: File to write, `.png` or `.svg`.
        memory: Add a panel with allocated memory over time.
        critical: Draw a line through the spans on the critical path.
        width: Width of the picture, inches; its height follows from the number of ranks.
        title: Headline; none where not given.
        until: End of the picture, seconds; the timeline's end where not given.

    Raises:
        InputError: nothing to draw, or the file cannot be written.
    """
    _check(timeline, path, memory, critical, until)
    with matplotlib.rc_context(_STYLE):
        figure = _compose(timeline, memory, critical, width, title, until)
    if path is not None:
        _save(figure, path)
    return figure


def svg_text(figure: Figure) -> str:
    """The figure as the text of an SVG file."""
    return _rendered(figure, ".svg").decode("utf-8")


def readable_unit(seconds: float) -> tuple[str, float]:
    """Unit in which a length of time reads well, and how many of it make a second."""
    if seconds >= 1.0:
        return "s", 1.0
    return ("ms", 1e3) if seconds >= 1e-3 else ("us", 1e6)


def _check(
    timeline: Timeline, path: Path | None, memory: bool, critical: bool, until: float | None
) -> None:
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise InputError(
            f"cannot draw to {path}: suffix '{path.suffix}'; allowed: {', '.join(SUFFIXES)}"
        )
    if timeline.end <= 0.0:
        raise InputError("cannot draw the timeline: it has no span that takes time")
    if until is not None and not 0.0 < until < math.inf:
        raise InputError(f"until={until} s cannot end a picture; allowed: more than 0 s, finite")
    if memory and not any(curve.times for curve in timeline.memory):
        raise InputError("cannot draw memory: the timeline has no memory curves; leave memory out")
    if critical and not timeline.critical:
        raise InputError(
            "cannot draw the critical path: the timeline has none; leave the critical path out"
        )


def _save(figure: Figure, path: Path) -> None:
    content = _rendered(figure, path.suffix.lower())
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror}; give a path in a folder that you can write to"
        ) from error


def _rendered(figure: Figure, suffix: str) -> bytes:
    content = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(content, format=suffix[1:], metadata=dict(_NO_DATES[suffix]))
    return content.getvalue()


def _compose(
    timeline: Timeline,
    memory: bool,
    critical: bool,
    width: float,
    title: str | None,
    until: float | None,
) -> Figure:
    """Lay out header, rows and memory panel from top to bottom, and fill them."""
    names = _row_names(timeline)
    left = 0.45 + _text_inches(max(names, key=len), _POINTS) * 1.1
    if width < left + _NARROWEST:
        raise InputError(
            f"width={width} inches has no room beside the names of the ranks; "
            f"allowed: at least {left + _NARROWEST:.1f}"
        )
    grid = _grid(timeline, width - left - _RIGHT, until)
    boxes = [grid.box(s) for s in timeline.spans if s.start * grid.per_second < grid.end]
    legend = _legend(boxes, grid, critical)
    columns = _columns(list(legend), grid.column_inches)
    headline = _wrapped(title or "", grid.column_inches, _BOLD)
    caption = _wrapped(_caption(timeline.meta), grid.column_inches, _POINTS)

    caption_top = _EDGE + _TITLE * len(headline)
    legend_top = caption_top + _LINE * len(caption) + (0.08 if caption else 0.0)
    rows_top = legend_top + _LEGEND_ROW * -(-len(legend) // columns) + 0.08
    rows_height = grid.row_inches * len(grid.rows)
    memory_top = rows_top + rows_height + _AXIS
    height = (memory_top + _MEMORY if memory else rows_top + rows_height) + _AXIS

    figure = Figure(figsize=(width, height), dpi=_DPI)
    x = left / width
    figure.text(x, 1 - _EDGE / height, "\n".join(headline), size=12, weight="bold", va="top")
    figure.text(x, 1 - caption_top / height, "\n".join(caption), color="#404040", va="top")
    _add_legend(figure, legend, columns, (x, 1 - legend_top / height))

    across = grid.column_inches / width
    tall = rows_height / height
    axes = figure.add_axes((x, 1 - rows_top / height - tall, across, tall))
    _draw_rows(axes, grid, boxes, names)
    if critical:
        _draw_critical(axes, timeline, grid)
    if memory:
        axes.tick_params(labelbottom=False)
        tall = _MEMORY / height
        axes = figure.add_axes((x, 1 - memory_top / height - tall, across, tall), sharex=axes)
        _draw_memory(axes, timeline.memory, grid)
    axes.set_xlabel(f"time [{grid.unit}]", labelpad=2)
    return figure


def _grid(timeline: Timeline, column_inches: float, until: float | None) -> _Grid:
    ranks = timeline.ranks
    end = timeline.end if until is None else until
    unit, per_second = readable_unit(end)
    row_inches = min(_ONE_ROW, _ALL_ROWS / len(ranks))
    boxes = sum(span.stream == "compute" and span.start < end for span in timeline.spans)
    return _Grid(
        rows={rank: row for row, rank in enumerate(ranks)},
        lanes=_lanes({span.stream for span in timeline.spans}, row_inches),
        chunks=_chunks(timeline.spans),
        end=end * per_second,
        unit=unit,
        per_second=per_second,
        row_inches=row_inches,
        column_inches=column_inches,
        dense=len(ranks) > _DENSE_RANKS or boxes > _DENSE_BOXES,
    )


def _lanes(streams: set[str], row_inches: float) -> dict[str, tuple[float, float]]:
    """Top and bottom of each stream within a row of height 1; compute takes most of it.

    In thin rows the communication streams share one lane; the thinnest have no gap between them.
    """
    others = [name for name in STREAMS[1:] if name in streams]
    others += sorted(streams - set(STREAMS))
    gap = 0.05 if row_inches * _DPI >= 12 else 0.0
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
        if _is_chunked(span):
            stages.setdefault(span.rank, set()).add(span.stage)
    return {(r, stage): i for r, own in stages.items() for i, stage in enumerate(sorted(own))}


def _is_chunked(span: Span) -> bool:
    return span.stream == "compute" and span.kind in colours.CHUNKED and span.stage >= 0


def _look(span: Span) -> Look:
    return colours.look_of(span.kind, span.stream)


def _draw_rows(axes: Axes, grid: _Grid, boxes: Sequence[_Box], names: Sequence[str]) -> None:
    """Idle background first, then the boxes of each look, their exposed tails, their labels."""
    rows = len(grid.rows)
    axes.set_xlim(0.0, grid.end)
    axes.set_ylim(rows, 0.0)
    for top, bottom in sorted(set(grid.lanes.values())):
        colour = colours.IDLE if top < 0.5 else colours.QUIET_LANE
        lanes = [(0.0, grid.end, row + top, row + bottom) for row in range(rows)]
        axes.add_collection(_rectangles(lanes, {"facecolors": colour, "linewidths": 0.0}))
    by_look: dict[tuple[Look, str], list[_Box]] = {}
    for box in boxes:
        by_look.setdefault((_look(box.span), box.span.stream), []).append(box)
    for (look, stream), alike in by_look.items():
        room = float(np.median([grid.pixels(box) for box in alike]))
        edged = stream == "compute" and room > _EDGED_PX
        style = {
            "facecolors": [box.fill for box in alike],
            "edgecolors": "white",
            "linewidths": 0.5 if edged else 0.0,
            "hatch": look.hatch or None,
            # boxes thinner than a pixel tint it by their share instead of taking it or vanishing
            "snap": None if room > _SNAP_PX else False,
        }
        axes.add_collection(_rectangles([box[1:5] for box in alike], style))
    _draw_exposed(axes, grid, boxes)
    for box, label in _labels(grid, boxes):
        _draw_label(axes, grid, box, label)
    _draw_frame(axes, grid, names)


def _rectangles(edges: Sequence[tuple[float, ...]], style: dict[str, Any]) -> PolyCollection:
    """One collection of rectangles given as left, right, top, bottom."""
    left, right, top, bottom = np.asarray(edges, dtype=float).T
    x = np.stack([left, right, right, left], axis=1)
    y = np.stack([top, top, bottom, bottom], axis=1)
    return PolyCollection(list(np.stack([x, y], axis=2)), **style)


def _draw_exposed(axes: Axes, grid: _Grid, boxes: Iterable[_Box]) -> None:
    """Hatch the part of each compute box that waits for communication, at the box's tail."""
    tails = [(b.tail, b.right, b.top, b.bottom) for b in boxes if b.tail < b.right]
    if tails:
        style = {
            "facecolors": colours.EXPOSED_FILL,
            "edgecolors": colours.EXPOSED,
            "linewidths": 0.0,
            "hatch": None if grid.dense else "/////",
            "snap": False if grid.dense else None,
        }
        axes.add_collection(_rectangles(tails, style))


def _labels(grid: _Grid, boxes: Iterable[_Box]) -> Iterator[tuple[_Box, str]]:
    """Micro-batch numbers for the boxes that have room, with the kind where all have room."""
    size = _label_points(grid)
    if grid.dense or size < _LABEL_POINTS:
        return
    numbered = [box for box in boxes if _is_chunked(box.span) and box.span.microbatch >= 0]
    digits = max((len(str(box.span.microbatch)) for box in numbered), default=0)
    # W is the widest letter and 0 as wide as any digit.
    named = all(grid.pixels(box) > _text_pixels("W" + "0" * digits, size) for box in numbered)
    for box in numbered:
        label = f"{box.span.kind if named else ''}{box.span.microbatch}"
        need = _text_pixels(("W" if named else "") + "0" * len(str(box.span.microbatch)), size)
        if grid.pixels(box) > max(_LABEL_PX, need):
            yield box, label


def _label_points(grid: _Grid) -> float:
    top, bottom = grid.lanes["compute"]
    return min(_POINTS, 0.6 * 72 * grid.row_inches * (bottom - top))


def _draw_label(axes: Axes, grid: _Grid, box: _Box, label: str) -> None:
    hatched = bool(_look(box.span).hatch)
    axes.text(
        (box.left + box.tail) / 2,
        (box.top + box.bottom) / 2,
        label,
        size=_label_points(grid),
        color=colours.ink(box.fill),
        ha="center",
        va="center_baseline",
        clip_on=True,
        path_effects=[Stroke(linewidth=2.0, foreground=box.fill), Normal()] if hatched else None,
    )


def _draw_frame(axes: Axes, grid: _Grid, names: Sequence[str]) -> None:
    """Name as many rows as have room, on a scale of powers of two; keep only the time axis."""
    step = 1
    while step * grid.row_inches < _LINE * 0.9:
        step *= 2
    middle = sum(grid.lanes["compute"]) / 2
    axes.set_yticks([row + middle for row in range(0, len(names), step)], names[::step])
    axes.set_ylabel("rank")
    axes.tick_params(axis="y", length=0.0)
    axes.spines[["top", "left", "right"]].set_visible(False)


def _draw_critical(axes: Axes, timeline: Timeline, grid: _Grid) -> None:
    """A line through each span on the critical path, from start to end, below the labels."""
    x: list[float] = []
    y: list[float] = []
    for number in timeline.critical:
        span = timeline.spans[number]
        box = grid.box(span)
        x += [box.left, span.end * grid.per_second]
        y += [0.2 * box.top + 0.8 * box.bottom] * 2
    axes.plot(
        x,
        y,
        color=colours.PATH,
        linewidth=1.4,
        solid_joinstyle="round",
        path_effects=[Stroke(linewidth=3.2, foreground="white", alpha=0.8), Normal()],
    )


def _draw_memory(axes: Axes, curves: Sequence[MemoryCurve], grid: _Grid) -> None:
    """Each rank's allocated memory; of many ranks the range, and the one that needs most."""
    curves = [curve for curve in curves if curve.times]
    if len(curves) <= _FEW_CURVES:
        ramp = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, len(curves)))
        for curve, colour in zip(curves, ramp, strict=True):
            _draw_curve(axes, curve, grid, f"rank {curve.rank}", colour)
    else:
        edges, low, high = _range_of(curves, grid)
        axes.fill_between(
            edges, low, high, step="post", color="#C8C8C8", linewidth=0, label="range of all ranks"
        )
        worst = max(curves, key=lambda curve: max(curve.bytes))
        _draw_curve(axes, worst, grid, f"rank {worst.rank} (highest peak)", colours.rgb("#0072B2"))
    axes.set_ylim(0.0, 1.08 * max(max(curve.bytes) for curve in curves) / _GIB)
    axes.set_ylabel("allocated [GiB]")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E0E0E0", linewidth=0.5)
    place: dict[str, Any] = {**_LEGEND, "loc": "lower left", "bbox_to_anchor": (0.0, 1.02)}
    axes.legend(ncols=_FEW_CURVES, **place)


def _draw_curve(axes: Axes, curve: MemoryCurve, grid: _Grid, label: str, colour: ColorType) -> None:
    """Steps that hold their value until the next change, the last one to the picture's end."""
    times = [*(time * grid.per_second for time in curve.times), grid.end]
    values = [value / _GIB for value in (*curve.bytes, curve.bytes[-1])]
    axes.plot(times, values, drawstyle="steps-post", color=colour, linewidth=1.2, label=label)


def _range_of(
    curves: Sequence[MemoryCurve], grid: _Grid
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Least and most of all curves in each of 1,000 equal bins, in GiB; no peak falls between."""
    edges = np.linspace(0.0, grid.end, 1001)
    low = np.full(len(edges), np.inf)
    high = np.full(len(edges), -np.inf)
    for curve in curves:
        times = np.asarray(curve.times) * grid.per_second
        values = np.asarray(curve.bytes) / _GIB
        held = values[np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)]
        np.minimum(low, held, out=low)
        np.maximum(high, held, out=high)
        bins = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 1)
        np.minimum.at(low, bins, values)
        np.maximum.at(high, bins, values)
    return edges, low, high


def _legend(boxes: Sequence[_Box], grid: _Grid, critical: bool) -> dict[str, Any]:
    """Handles by text: the looks that occur in palette order, then what is drawn over them."""
    area = grid.end * len(grid.rows)
    present = {_look(box.span) for box in boxes}
    ordered = [look for look in dict.fromkeys(colours.LOOKS.values()) if look in present]
    ordered += sorted(present - set(ordered))
    legend: dict[str, Any] = {look.label: _swatch(look.colour, look.hatch) for look in ordered}
    if grid.chunk_count > 1:
        shades = [colours.shade("#404040", i, grid.chunk_count) for i in range(grid.chunk_count)]
        legend[f"chunk 0 .. {grid.chunk_count - 1}"] = tuple(_swatch(s) for s in shades)
    if any(box.tail < box.right for box in boxes):
        legend["exposed communication"] = Patch(
            facecolor=colours.EXPOSED_FILL, edgecolor=colours.EXPOSED, hatch="/////", linewidth=0
        )
    if sum(b.right - b.left for b in boxes if b.span.stream == "compute") < _FULL * area:
        legend["idle"] = _swatch(colours.IDLE)
    if critical:
        legend["critical path"] = Line2D([], [], color=colours.PATH, linewidth=1.4)
    return legend


def _swatch(colour: ColorType, hatch: str = "") -> Patch:
    return Patch(facecolor=colour, edgecolor="white", linewidth=0.0, hatch=hatch or None)


def _add_legend(
    figure: Figure, legend: Mapping[str, Any], columns: int, place: tuple[float, float]
) -> None:
    figure.legend(
        list(legend.values()),
        list(legend),
        ncols=columns,
        bbox_to_anchor=place,
        handler_map={tuple: HandlerTuple(ndivide=None, pad=0.0)},
        **_LEGEND,
    )


def _columns(names: Sequence[str], inches: float) -> int:
    """Most columns in which the legend's texts fit side by side."""
    size = _LEGEND["fontsize"]
    around = (2.0 + 0.5 + 1.4) * size / 72  # swatch, its gap, the gap between columns
    for columns in range(len(names), 1, -1):
        groups = [list(group) for group in np.array_split(np.asarray(names), columns)]
        if sum(max(_text_inches(n, size) for n in g) + around for g in groups) <= inches:
            return columns
    return 1


def _row_names(timeline: Timeline) -> list[str]:
    labels = rank_labels(timeline)
    return [textwrap.shorten(labels.get(r, str(r)), 40, placeholder="...") for r in timeline.ranks]


def _caption(meta: Mapping[str, Any]) -> str:
    parts = [str(meta["plan"])] if meta.get("plan") else []
    if meta.get("step_time_s") is not None:
        unit, per_second = readable_unit(meta["step_time_s"])
        parts.append(f"step time {meta['step_time_s'] * per_second:.4g} {unit}")
    if meta.get("bubble_fraction") is not None:
        of = f" ({meta['bubble_definition']})" if meta.get("bubble_definition") else ""
        parts.append(f"bubble {100 * meta['bubble_fraction']:.1f} %{of}")
    if meta.get("peak_allocated_bytes") is not None:
        peak = np.max(meta["peak_allocated_bytes"]) / _GIB
        parts.append(f"peak allocated {peak:.1f} GiB")
    return " · ".join(parts)


def _wrapped(text: str, inches: float, points: float) -> list[str]:
    """The text in lines that fit, but for words that are longer than a line."""
    lines: list[str] = []
    for word in text.split():
        if lines and _text_inches(f"{lines[-1]} {word}", points) < 0.95 * inches:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


@functools.lru_cache(maxsize=1024)
def _text_inches(text: str, points: float) -> float:
    font = FontProperties(family=_STYLE["font.family"], size=points)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


def _text_pixels(text: str, points: float) -> float:
    """Width of a label with a little air; its letters bring some of their own."""
    return _text_inches(text, points) * _DPI + 1.0
