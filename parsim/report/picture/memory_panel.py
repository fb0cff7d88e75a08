"""The panel below a timeline's picture: each rank's allocated memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType

from parsim.arrays import Array
from parsim.report.picture import colours
from parsim.report.picture.grid import Grid
from parsim.report.picture.legend import LEGEND
from parsim.timelines.timeline import MemoryCurve
from parsim.units import GIB

_FEW_CURVES: Final = 8
_BINS: Final = 1000

# Of the highest curve: memory beyond so much of it flattens it; where its line is then; the break.
_FLAT: Final = 3.0
_ABOVE: Final = 1.3
_BREAK: Final = 1.15


def draw_memory(
    axes: Axes, curves: Sequence[MemoryCurve], grid: Grid, capacity: float | None = None
) -> None:
    """What the fullest rank holds by category, the other ranks' curves, and the device's memory.

    Args:
        axes: the panel.
        curves: one a rank, bytes.
        grid: its scale of time.
        capacity: bytes of a device; no line where not known.
    """
    curves = [curve for curve in curves if curve.times]
    worst = max(curves, key=lambda curve: max(curve.bytes))
    _draw_parts(axes, worst, grid)
    if len(curves) <= _FEW_CURVES:
        _draw_others(axes, [curve for curve in curves if curve is not worst], grid)
    else:
        _draw_range(axes, curves, grid, outlined=bool(worst.activations))
    _draw_curve(axes, worst, grid, f"rank {worst.rank} (highest peak)", "#101010")
    _scale(axes, max(worst.bytes) / GIB, None if capacity is None else capacity / GIB)
    axes.set_ylabel("allocated [GiB]")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E0E0E0", linewidth=0.5)
    look: dict[str, Any] = {**LEGEND, "loc": "lower left", "bbox_to_anchor": (0.0, 1.02)}
    axes.legend(ncols=_FEW_CURVES, **look)


def _scale(axes: Axes, most: float, capacity: float | None) -> None:
    """Let the panel end above the highest curve and the device's memory, in GiB.

    Where curves would be flat below that memory, the axis is broken: its line stands above the
    break, with its own number beside it.
    """
    if capacity is None:
        axes.set_ylim(0.0, 1.08 * most)
        return
    label = f"memory of the device, {capacity:.4g} GiB"
    line: dict[str, Any] = {"color": colours.CAPACITY, "ls": "--", "linewidth": 1.2}
    if capacity <= _FLAT * most:
        axes.axhline(capacity, label=label, **line)
        axes.set_ylim(0.0, 1.08 * max(most, capacity))
        return
    axes.axhline(_ABOVE * most, label=f"{label} (not to scale)", **line)
    axes.set_ylim(0.0, 1.08 * _ABOVE * most)
    ticks = [tick for tick in MaxNLocator(4).tick_values(0.0, most) if tick <= 1.04 * most]
    axes.set_yticks([*ticks, _ABOVE * most], [*(f"{tick:g}" for tick in ticks), f"{capacity:.4g}"])
    broken: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "clip_on": False}
    for height in (_BREAK - 0.02, _BREAK + 0.02):
        axes.plot((-0.005, 0.005), (height * most,) * 2, color="#101010", lw=0.8, **broken)


def _draw_parts(axes: Axes, curve: MemoryCurve, grid: Grid) -> None:
    """What is in a predicted curve, from the bottom up: static parts, activations, buffers."""
    if not curve.activations:
        return
    times = [*(time * grid.per_second for time in curve.times), grid.end]
    flat = np.ones(len(curve.times))
    named = {"static": curve.static} if not curve.parts else curve.parts
    parts: dict[str, Array] = {name: size * flat for name, size in named.items()}
    parts["activations"] = np.array(curve.activations)
    if any(curve.old_weights):
        parts["old weights"] = np.array(curve.old_weights)
    parts["buffers"] = np.array(curve.buffers)
    level = np.zeros(len(times))
    for name, values in parts.items():
        top = level + np.append(values, values[-1]) / GIB
        colour = colours.PARTS.get(name, "#BBBBBB")
        axes.fill_between(
            times, level, top, step="post", color=colour, alpha=0.75, linewidth=0, label=name
        )
        level = top


def _draw_others(axes: Axes, curves: Sequence[MemoryCurve], grid: Grid) -> None:
    """The curves of the other ranks, thin and named as one."""
    for number, curve in enumerate(curves):
        _draw_curve(axes, curve, grid, "_" if number else "other ranks", "#707070", linewidth=0.6)


def _draw_range(axes: Axes, curves: Sequence[MemoryCurve], grid: Grid, *, outlined: bool) -> None:
    """Least and most of all ranks as a band, or as its edges where parts are drawn below it."""
    edges, low, high = _range_of(curves, grid)
    filled: dict[str, Any] = {"color": "#C8C8C8", "alpha": 0.7, "linewidth": 0}
    lines: dict[str, Any] = {"facecolor": "none", "edgecolor": "#505050", "linewidth": 0.7}
    look = lines if outlined else filled
    axes.fill_between(edges, low, high, step="post", label="range of all ranks", **look)


def _draw_curve(
    axes: Axes,
    curve: MemoryCurve,
    grid: Grid,
    label: str,
    colour: ColorType,
    linewidth: float = 1.2,
) -> None:
    """Steps that hold their value until the next change, the last one to the picture's end."""
    times = [*(time * grid.per_second for time in curve.times), grid.end]
    values = [value / GIB for value in (*curve.bytes, curve.bytes[-1])]
    axes.plot(times, values, drawstyle="steps-post", color=colour, linewidth=linewidth, label=label)


def _range_of(curves: Sequence[MemoryCurve], grid: Grid) -> tuple[Array, Array, Array]:
    """Least and most of all curves in each of many equal bins, in GiB; no peak falls between."""
    edges = np.linspace(0.0, grid.end, _BINS + 1)
    low = np.full(len(edges), np.inf)
    high = np.full(len(edges), -np.inf)
    for curve in curves:
        times = np.asarray(curve.times) * grid.per_second
        values = np.asarray(curve.bytes) / GIB
        standing = values[np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)]
        np.minimum(low, standing, out=low)
        np.maximum(high, standing, out=high)
        bins = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 1)
        np.minimum.at(low, bins, values)
        np.maximum.at(high, bins, values)
    return edges, low, high
