"""The panel below a timeline's picture: each rank's allocated memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.typing import ColorType

from parsim.arrays import Array
from parsim.report.picture import colours
from parsim.report.picture.grid import Grid
from parsim.report.picture.legend import LEGEND
from parsim.timelines.timeline import MemoryCurve
from parsim.units import GIB

_FEW_CURVES: Final = 8
_BINS: Final = 1000


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
        _draw_range(axes, curves, grid)
    _draw_curve(axes, worst, grid, f"rank {worst.rank} (highest peak)", "#101010")
    most = max(worst.bytes)
    if capacity is not None:
        most = max(most, capacity)
        label = f"memory of the device, {capacity / GIB:.4g} GiB"
        axes.axhline(capacity / GIB, color=colours.CAPACITY, ls="--", linewidth=1.2, label=label)
    axes.set_ylim(0.0, 1.08 * most / GIB)
    axes.set_ylabel("allocated [GiB]")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E0E0E0", linewidth=0.5)
    look: dict[str, Any] = {**LEGEND, "loc": "lower left", "bbox_to_anchor": (0.0, 1.02)}
    axes.legend(ncols=_FEW_CURVES, **look)


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


def _draw_range(axes: Axes, curves: Sequence[MemoryCurve], grid: Grid) -> None:
    edges, low, high = _range_of(curves, grid)
    axes.fill_between(
        edges,
        low,
        high,
        step="post",
        color="#C8C8C8",
        alpha=0.7,
        linewidth=0,
        label="range of all ranks",
    )


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
