"""A picture of a guide: samples a second and memory of every family."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from parsim.guide.record import OTHERWISE, FamilyRow, Guide
from parsim.report.picture.saving import STYLE, save_picture
from parsim.sim.confidence.memory_fit import Fit
from parsim.units import GIB, MIB, format_bytes

FITS, TOO_LARGE, CHOSEN = "#56B4E9", "#E8E8E8", "#0072B2"
_ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.0}
FAR = 8.0
"""Usable memory of so many times the highest peak is not drawn: all bars would be slivers."""


def draw_guide(guide: Guide, path: Path) -> Figure:
    """Bars of all families that have a plan; grey ones do not fit, the dark one is recommended.

    Those whose plan is tight are hatched, and say so.
    Families without a plan are named below, and what a star means where a name has one.
    """
    rows = [row for row in guide.rows if row.prediction is not None][::-1]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.0, 0.8 + 0.36 * len(rows)), layout="constrained")
        speed, memory = figure.subplots(1, 2, sharey=True)
        names = [row.name if row.same_training else f"{row.name} *" for row in rows]
        colours = [_colour(row, guide.chosen) for row in rows]
        bars = speed.barh(names, [row.samples_per_second for row in rows], color=colours)
        _hatch_tight(bars, rows)
        for index, row in enumerate(rows):
            end = row.samples_per_second if row.fits else 0.0
            speed.text(end, index, f" {_words(row)}", va="center")
        speed.set_xlabel("samples/s")
        speed.margins(x=0.22 if any(map(_tight, rows)) else 0.16)
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
    usable = min(row.prediction.fullest.usable for row in rows if row.prediction)
    size, unit = (GIB, "GiB") if highest >= GIB / 10 else (MIB, "MiB")
    _hatch_tight(axes.barh(names, [_peak(row) / size for row in rows], color=colours), rows)
    for index, row in enumerate(rows):
        text = axes.text(_peak(row) / size, index, f" {format_bytes(_peak(row))}", va="center")
        text.set_bbox(_ON_WHITE)  # the line of what is usable would cross it
    words = f"{format_bytes(usable)} usable"
    if usable <= FAR * highest:
        axes.axvline(usable / size, color="#D55E00", linewidth=1.0)
        words = f"line: {words}"
    axes.set_xlabel(f"peak memory [{unit}]; {words}")
    axes.margins(x=0.2)


def _hatch_tight(bars: BarContainer, rows: list[FamilyRow]) -> None:
    """Mark the bars of plans that are tight."""
    for bar, row in zip(bars, rows, strict=True):
        if _tight(row):
            bar.set(hatch="////", edgecolor="white", linewidth=0.0)


def _tight(row: FamilyRow) -> bool:
    return row.prediction is not None and row.prediction.fit is Fit.TIGHT


def _words(row: FamilyRow) -> str:
    """A family's rate, and whether its plan is tight or does not fit."""
    if not row.fits:
        return "does not fit"
    return row.rate + (", tight" if _tight(row) else "")


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
    return row.prediction.fullest.peak_allocated if row.prediction else 0.0
