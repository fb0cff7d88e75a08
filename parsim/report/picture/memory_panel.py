"""The panel below a timeline's picture: each rank's allocated memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.typing import ColorType

from parsim.arrays import Array
from parsim.report.picture import colours
from parsim.report.picture.grid import Grid
from parsim.report.picture.legend import LEGEND
from parsim.timelines.timeline import MemoryCurve

_GIB: Final = 2.0**30
_FEW_CURVES: Final = 8
_BINS: Final = 1000


def draw_memory(axes: Axes, curves: Sequence[MemoryCurve], grid: Grid) -> None:
    """Each rank's allocated memory; of many ranks the range, and the one that needs most."""
    curves = [curve for curve in curves if curve.times]
    if len(curves) <= _FEW_CURVES:
        ramp = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, len(curves)))
        for curve, colour in zip(curves, ramp, strict=True):
            _draw_curve(axes, curve, grid, f"rank {curve.rank}", colour)
    else:
        _draw_range(axes, curves, grid)
    _draw_static(axes, curves, grid)
    axes.set_ylim(0.0, 1.08 * max(max(curve.bytes) for curve in curves) / _GIB)
    axes.set_ylabel("allocated [GiB]")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E0E0E0", linewidth=0.5)
    look: dict[str, Any] = {**LEGEND, "loc": "lower left", "bbox_to_anchor": (0.0, 1.02)}
    axes.legend(ncols=_FEW_CURVES, **look)


def _draw_static(axes: Axes, curves: Sequence[MemoryCurve], grid: Grid) -> None:
    """What of the highest curve stays for the whole run; above it are activations and buffers."""
    worst = max(curves, key=lambda curve: max(curve.bytes))
    if worst.activations:
        level = [worst.static / _GIB] * 2
        label = f"static (rank {worst.rank})"
        axes.plot([0.0, grid.end], level, color="#707070", ls=":", linewidth=1.0, label=label)


def _draw_range(axes: Axes, curves: Sequence[MemoryCurve], grid: Grid) -> None:
    edges, low, high = _range_of(curves, grid)
    axes.fill_between(
        edges, low, high, step="post", color="#C8C8C8", linewidth=0, label="range of all ranks"
    )
    worst = max(curves, key=lambda curve: max(curve.bytes))
    _draw_curve(axes, worst, grid, f"rank {worst.rank} (highest peak)", colours.rgb("#0072B2"))


def _draw_curve(axes: Axes, curve: MemoryCurve, grid: Grid, label: str, colour: ColorType) -> None:
    """Steps that hold their value until the next change, the last one to the picture's end."""
    times = [*(time * grid.per_second for time in curve.times), grid.end]
    values = [value / _GIB for value in (*curve.bytes, curve.bytes[-1])]
    axes.plot(times, values, drawstyle="steps-post", color=colour, linewidth=1.2, label=label)


def _range_of(curves: Sequence[MemoryCurve], grid: Grid) -> tuple[Array, Array, Array]:
    """Least and most of all curves in each of many equal bins, in GiB; no peak falls between."""
    edges = np.linspace(0.0, grid.end, _BINS + 1)
    low = np.full(len(edges), np.inf)
    high = np.full(len(edges), -np.inf)
    for curve in curves:
        times = np.asarray(curve.times) * grid.per_second
        values = np.asarray(curve.bytes) / _GIB
        standing = values[np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)]
        np.minimum(low, standing, out=low)
        np.maximum(high, standing, out=high)
        bins = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 1)
        np.minimum.at(low, bins, values)
        np.maximum.at(high, bins, values)
    return edges, low, high
