"""The picture of the accuracy report: predicted against measured step time, every row a point.

predicted │        ,·/        error │   ·
          │      ,·/·               │▒▒·▒▒·▒▒▒   the band is +-10 %
          │    ·/·                  │▒·▒·▒▒▒·▒
          │  /·                     │        ·
          └──────────── measured    └────────── measured
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Formatter, FuncFormatter, NullFormatter

from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.validation.validate import Validation
from parsim.validation.validated_row import ValidatedRow

BAND: Final = 0.10
"""Half the width of the grey band."""
SIZE: Final = (13.0, 6.2)
DPI: Final = 130
COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#332288", "#882255", "#44AA99", "#999933", "#661100", "#6699CC"),
)
"""Okabe and Ito's colours, then Tol's: told apart by colour-blind readers too."""
FARTHEST: Final = 40.0
"""Errors beyond this are drawn at the edge, percent; the left panel shows them where they are."""
MARKS: Final = "os^Dv<>phX*P"


Points = dict[str, list[tuple[float, float]]]


def draw_scatter(validation: Validation, path: Path | None = None) -> Figure:
    """Draw all rows with a measured step time; save the picture where a path is given.

    Raises:
        InputError: the file cannot be written.
    """
    check_picture(path)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        both, errors = figure.subplots(1, 2)
        tables = {name: _points(validation.of(name)) for name in validation.tables}
        _compose(both, errors, {name: points for name, points in tables.items() if points})
        handles, labels = both.get_legend_handles_labels()
        look = {"ncols": 4, "frameon": False, "fontsize": 8}
        figure.legend(handles, labels, loc="outside lower center", **look)
    save_picture(figure, path, DPI)
    return figure


def _points(rows: tuple[ValidatedRow, ...]) -> list[tuple[float, float]]:
    """Measured and predicted seconds."""
    return [
        (row.measured_step, row.predicted_step)
        for row in rows
        if row.measured_step is not None and row.predicted_step is not None
    ]


def _compose(both: Axes, errors: Axes, tables: Points) -> None:
    every = [value for points in tables.values() for pair in points for value in pair]
    ends = [0.7 * min(every), 1.4 * max(every)] if every else [0.1, 10.0]
    _both_axes(both, ends)
    _error_axes(errors, ends)
    # the largest table first, so that its points do not cover the others'
    for number, name in sorted(enumerate(tables), key=lambda pair: -len(tables[pair[1]])):
        points = tables[name]
        _scatter(both, f"{name} ({len(points)})", points, number)
        percents = [(seconds, 100.0 * (predicted / seconds - 1.0)) for seconds, predicted in points]
        near = [(seconds, max(-FARTHEST, min(FARTHEST, error))) for seconds, error in percents]
        _scatter(errors, "", near, number)


def _both_axes(axes: Axes, ends: list[float]) -> None:
    _log_axis(axes, ends)
    axes.set(yscale="log", ylim=ends, ylabel="predicted step time, s")
    below, above = [(1 - BAND) * end for end in ends], [(1 + BAND) * end for end in ends]
    axes.fill_between(ends, below, above, color="#DDDDDD", linewidth=0, label="within ±10 %")
    axes.plot(ends, ends, color="#888888", linewidth=0.8, zorder=1)
    axes.yaxis.set_major_formatter(FuncFormatter(_seconds))
    axes.yaxis.set_minor_formatter(_between(ends))


def _error_axes(axes: Axes, ends: list[float]) -> None:
    _log_axis(axes, ends)
    limit = 1.08 * FARTHEST
    axes.set(ylim=(-limit, limit), ylabel=f"error, % (beyond {FARTHEST:.0f} at the edge)")
    axes.axhspan(-100 * BAND, 100 * BAND, color="#DDDDDD", linewidth=0)
    axes.axhline(0.0, color="#888888", linewidth=0.8, zorder=1)


def _log_axis(axes: Axes, ends: list[float]) -> None:
    axes.set(xscale="log", xlim=ends, xlabel="measured step time, s")
    axes.xaxis.set_major_formatter(FuncFormatter(_seconds))
    axes.xaxis.set_minor_formatter(_between(ends))
    axes.grid(visible=True, which="major", color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)


def _between(ends: list[float]) -> Formatter:
    """Numbers between the powers of ten, where these alone would not say how long the axis is."""
    return FuncFormatter(_seconds) if ends[1] < 10.0 * ends[0] else NullFormatter()


def _seconds(value: float, _: int) -> str:
    return f"{value:g}"


def _scatter(axes: Axes, label: str, points: list[tuple[float, float]], number: int) -> None:
    across, up = zip(*points, strict=True)
    size, alpha = (6, 0.45) if len(points) > 200 else (15, 0.8)
    look: dict[str, Any] = {"s": size, "alpha": alpha, **look_of(number)}
    axes.scatter(across, up, linewidths=0, label=label, **look)


def look_of(number: int) -> dict[str, str]:
    """Colour and mark of a table, by its number: no other of the first 144 has both."""
    rounds, colour = divmod(number, len(COLOURS))
    return {"color": COLOURS[colour], "marker": MARKS[(colour + rounds) % len(MARKS)]}
