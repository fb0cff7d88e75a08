"""Pictures of a suite: predicted against measured, errors with their spread, overlays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from executor.suite.results import Outcome, Result
from parsim.comparison.timelines import compare_timelines
from parsim.report.picture.grid import DPI, POINTS
from parsim.report.picture.legend import FONT
from parsim.report.picture.overlay import draw_overlay
from parsim.report.picture.saving import save_picture
from parsim.timelines.reader import load_timeline

_STYLE: Final[Any] = {
    "font.family": [FONT],
    "font.size": POINTS,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
}
_COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),  # Okabe and Ito
    *("#882255", "#332288", "#117733", "#999933", "#000000", "#999999"),  # Paul Tol's muted, greys
)
_MARKS: Final = "osD^vPX*h"
_ROW: Final = 0.19
"""Height of a legend's row, inches."""
_BAND: Final = 0.1
"""The shaded band around a perfect prediction: +-10 %."""


def draw_all(out: Path, outcome: Outcome) -> list[str]:
    """Draw what the results allow; the names of the files in `out`, in the order of the report."""
    drawn = []
    if outcome.counted:
        with matplotlib.rc_context(_STYLE):
            for name, draw in (("scatter.png", scatter), ("errors.png", errors)):
                save_picture(draw(outcome.counted), out / name)
                drawn.append(name)
    return [*drawn, *_overlays(out, outcome.results)]


def _overlays(out: Path, results: Sequence[Result]) -> Iterator[str]:
    """One for each family, of its largest model."""
    slowest: dict[str, Result] = {}
    for result in results:
        kept = slowest.get(result.family)
        if kept is None or result.step_time.measured > kept.step_time.measured:
            slowest[result.family] = result
    for result in slowest.values():
        folder, name = out / result.name, f"overlay-{result.name}.png"
        both = (load_timeline(folder / "predicted.json"), load_timeline(folder / "timeline.json"))
        draw_overlay(*both, compare_timelines(*both), path=out / name)
        yield name


def scatter(results: Sequence[Result]) -> Figure:
    """Predicted over measured step times, both logarithmic; on the diagonal they are equal."""
    families = list(dict.fromkeys(result.family for result in results))
    models = list(dict.fromkeys(result.model for result in results))
    longest = max(map(len, (*families, *models)))
    side = max(4.4, _ROW * (2 + len(families) + len(models)))  # inches; the axes are a square
    width, height = side + 2.0 + 0.072 * longest, side + 0.8
    figure = Figure(figsize=(width, height), dpi=DPI)
    axes = figure.add_axes((0.95 / width, 0.6 / height, side / width, side / height))
    pairs = [result.step_time for result in results]
    times = [seconds for pair in pairs for seconds in (pair.predicted, pair.measured)]
    low, high = min(times) / 1.3, max(times) * 1.3
    _draw_band(axes, low, high)
    for result in results:
        mark = _MARKS[models.index(result.model) % len(_MARKS)]
        _draw_run(axes, result, mark, _COLOURS[families.index(result.family) % len(_COLOURS)])
    _keys(axes, families, models)
    _scale(axes, low, high)
    return figure


def _scale(axes: Axes, low: float, high: float) -> None:
    """Both axes logarithmic, with few ticks in words."""
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(low, high),
        ylim=(low, high),
        xlabel="measured step time, median and MAD",
        ylabel="predicted step time",
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=_subdivision(high / low)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _seconds(value)))
        axis.set_minor_locator(NullLocator())


def _draw_band(axes: Axes, low: float, high: float) -> None:
    """The diagonal, and how far from it predictions are as good as asked."""
    axes.plot([low, high], [low, high], color="#606060", linewidth=0.8)
    ends, words = np.array([low, high]), f"within {100 * _BAND:.0f} %"
    band = (ends * (1.0 - _BAND), ends * (1.0 + _BAND))
    axes.fill_between(ends, *band, color="#E8E8E8", linewidth=0.0, label=words)


def _draw_run(axes: Axes, result: Result, mark: str, colour: str) -> None:
    """One run with the deviation of its measured steps."""
    axes.errorbar(
        result.step_time.measured,
        result.step_time.predicted,
        xerr=result.mad,
        fmt=mark,
        color=colour,
        markersize=6,
        markeredgecolor="white",
        markeredgewidth=0.5,
        elinewidth=1.0,
    )


def _subdivision(ratio: float) -> tuple[float, ...]:
    """Where a decade of an axis has ticks: fewer, the more decades there are."""
    if ratio < 5.0:
        return (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    return (1.0, 2.0, 5.0) if ratio < 1e3 else (1.0,)


def _seconds(value: float) -> str:
    """Such as `20 ms`."""
    factor, unit = next(
        ((f, u) for f, u in ((1.0, "s"), (1e-3, "ms")) if value >= 0.999 * f), (1e-6, "us")
    )
    return f"{value / factor:g} {unit}"


def _keys(axes: Axes, families: Sequence[str], models: Sequence[str]) -> None:
    """A colour for each family, a mark for each model."""
    for number, family in enumerate(families):
        axes.plot([], [], "o", color=_COLOURS[number % len(_COLOURS)], label=family)
    if families != models:
        for number, model in enumerate(models):
            mark = _MARKS[number % len(_MARKS)]
            axes.plot([], [], mark, color="white", markeredgecolor="black", label=model)
    axes.legend(loc="upper left", bbox_to_anchor=(1.03, 1.0), frameon=False, borderaxespad=0.0)


def errors(results: Sequence[Result]) -> Figure:
    """Signed errors of step time and peak memory, a bar for each case."""
    tall = 1.0 + 0.26 * len(results)
    figure = Figure(figsize=(10.0, tall), dpi=DPI, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _time_errors(left, results)
    _bars(right, [100.0 * (result.peak.error or 0.0) for result in results])
    left.set(xlabel="error of step time [%]", ylim=(len(results) - 0.4, -0.6))
    left.set_yticks(range(len(results)), [result.name for result in results])
    left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), frameon=False, borderaxespad=0.0)
    right.set(xlabel="error of peak memory [%]")
    right.tick_params(left=False)
    return figure


def _time_errors(axes: Axes, results: Sequence[Result]) -> None:
    """Bars of step time with their scatter, and marks of the error against the fastest step."""
    of_time = [100.0 * (result.step_time.error or 0.0) for result in results]
    rows = range(len(results))
    _bars(axes, of_time)
    axes.errorbar(
        of_time,
        rows,
        xerr=[[100.0 * gap for gap in side] for side in _whiskers(results)],
        fmt="none",
        ecolor="black",
        elinewidth=1.0,
        capsize=2.0,
    )
    axes.plot(
        [100.0 * result.error_of_least for result in results],
        rows,
        "|",
        color="#D55E00",
        markersize=8,
        markeredgewidth=1.6,
        label="against the fastest step",
    )


def _bars(axes: Axes, values: Sequence[float]) -> None:
    axes.axvspan(-100.0 * _BAND, 100.0 * _BAND, color="#F0F0F0", linewidth=0.0)
    axes.barh(range(len(values)), values, height=0.6, color="#56B4E9")
    axes.axvline(0.0, color="black", linewidth=0.8)


def _whiskers(results: Sequence[Result]) -> tuple[list[float], list[float]]:
    """How far the error moves down and up when the step takes one MAD more, or less."""
    down, up = [], []
    for result in results:
        middle, mad, predicted = result.step_time.measured, result.mad, result.step_time.predicted
        down.append(predicted / middle - predicted / (middle + mad))
        up.append(predicted / max(middle - mad, result.least) - predicted / middle)
    return down, up
