"""A picture of a guide: samples a second and memory of every family."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parsim.guide.record import OTHERWISE, FamilyRow, Guide
from parsim.report.picture.saving import STYLE, save_picture
from parsim.units import GIB, MIB, format_bytes

FITS, TOO_LARGE, CHOSEN = "#56B4E9", "#E8E8E8", "#0072B2"
FAR = 8.0
"""Usable memory of so many times the highest peak is not drawn: all bars would be slivers."""


def draw_guide(guide: Guide, path: Path) -> Figure:
    """Bars of all families that have a plan; grey ones do not fit, the dark one is recommended.

    Families without a plan are named below, and what a star means where a name has one.
    """
    rows = [row for row in guide.rows if row.prediction is not None][::-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.0, 0.8 + 0.36 * len(rows)), layout="constrained")
        speed, memory = figure.subplots(1, 2, sharey=True)
        names = [row.name if row.same_training else f"{row.name} *" for row in rows]
        colours = [_colour(row, guide.chosen) for row in rows]
        speed.barh(names, [row.samples_per_second for row in rows], color=colours)
        for index, row in enumerate(rows):
            text = f" {_speed(row.samples_per_second)}" if row.fits else " does not fit"
            speed.text(row.samples_per_second if row.fits else 0.0, index, text, va="center")
        speed.set_xlabel("samples/s")
        speed.margins(x=0.16)
        _draw_memory(memory, rows, names, colours)
        title = f"recommended for {guide.headline}" if guide.chosen else guide.headline
        figure.suptitle(title, fontsize="medium", x=0.01, ha="left")
        figure.supxlabel("\n".join(_notes(guide)), fontsize="small", x=0.01, ha="left")
        for axes in (speed, memory):
            axes.spines[["top", "right"]].set_visible(False)
    save_picture(figure, path)
    return figure


def _draw_memory(axes: Axes, rows: list[FamilyRow], names: list[str], colours: list[str]) -> None:
    """Peaks with their numbers; the line of what is usable where it is not far beyond all bars."""
    highest = max(map(_peak, rows))
    usable = min(row.prediction.usable for row in rows if row.prediction)
    size, unit = (GIB, "GiB") if highest >= GIB / 10 else (MIB, "MiB")
    axes.barh(names, [_peak(row) / size for row in rows], color=colours)
    for index, row in enumerate(rows):
        axes.text(_peak(row) / size, index, f" {format_bytes(_peak(row))}", va="center")
    words = f"{format_bytes(usable)} usable"
    if usable <= FAR * highest:
        axes.axvline(usable / size, color="#D55E00", linewidth=1.0)
        words = f"line: {words}"
    axes.set_xlabel(f"peak memory [{unit}]; {words}")
    axes.margins(x=0.2)


def _speed(samples: float) -> str:
    """A rate with one digit behind the point, none from 1,000 on."""
    return f"{samples:,.0f}" if samples >= 1000.0 else f"{samples:,.1f}"


def _notes(guide: Guide) -> Iterator[str]:
    """What a star means, and the families that have no bar."""
    if not all(row.same_training for row in guide.rows if row.prediction):
        yield OTHERWISE
    without = ", ".join(row.name for row in guide.rows if row.prediction is None)
    if without:
        yield f"no plan of {without} (the table says why)"


def _colour(row: FamilyRow, chosen: FamilyRow | None) -> str:
    if not row.fits:
        return TOO_LARGE
    return CHOSEN if row is chosen else FITS


def _peak(row: FamilyRow) -> float:
    return max(row.prediction.peak_allocated) if row.prediction else 0.0
