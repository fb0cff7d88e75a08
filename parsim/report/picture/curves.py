"""Losses of several runs in one picture: against seconds on the left, against samples on the right.

loss │╲ ╲                │╲╲
     │ ╲  ╲__ ddp        │ ╲╲__ ddp
     │  ╲____ server     │   ╲__ server
     └──────── seconds   └──────── samples
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parsim.comparison.curves import CurveComparison
from parsim.report.picture import colours
from parsim.report.picture.saving import STYLE, save_picture

_COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#E69F00", "#56B4E9", "#882255", "#4D4D4D"),
)
_LINES: Final = ("-", "--", "-.", ":")


def draw_curves(comparison: CurveComparison, path: Path | None = None) -> Figure:
    """Draw all runs, each with a colour and a dash of its own; save where a path is given."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.0, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for number, curve in enumerate(comparison.curves):
            look = {
                "color": _COLOURS[number % len(_COLOURS)],
                "linestyle": _LINES[number // len(_COLOURS) % len(_LINES)],
                "linewidth": 1.4,
            }
            left.plot(curve.seconds, curve.loss, label=curve.name, **look)
            right.plot(curve.samples, curve.loss, **look)
        left.set_xlabel("seconds")
        right.set_xlabel("samples of all workers")
        what = "loss of evaluations" if comparison.evaluated else "loss"
        left.set_ylabel(f"{what} [nats per token]")
        for axes in (left, right):
            _plain(axes)
        figure.legend(loc="outside upper left", ncols=min(len(comparison.curves), 5), frameon=False)
    save_picture(figure, path)
    return figure


def _plain(axes: Axes) -> None:
    axes.set_xlim(left=0.0)
    axes.grid(axis="y", color=colours.IDLE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
