"""Pictures of training losses: of a run by its step, of several runs by seconds and samples.

loss │- - - - - - - - - -  a model that guesses: ln(vocabulary)
     │░o-o░
     │░░░░░╲●
     │░░░░░░ ╲●-●
     │░░░░░░     ╲●-●
     └──────────────────── step
      warm-up measured
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from parsim.comparison.curves import CurveComparison
from parsim.report.picture import colours
from parsim.report.picture.grid import DPI
from parsim.report.picture.legend import head_of
from parsim.report.picture.saving import STYLE, check_picture, save_picture

LossOf = Literal["token", "sample"]
"""What a mean loss is the mean over."""

_COLOUR: Final = colours.LOOKS["F"].colour
_GUESS: Final = "#8C8C8C"
_MARKED: Final = 60  # more steps than that touch each other's markers

# Inches.
_LEFT: Final = 0.7
_RIGHT: Final = 0.25
_HEIGHT: Final = 2.6
_BELOW: Final = 0.5


def draw_loss(
    losses: Sequence[float],
    *,
    warmup: int,
    vocab_rows: int,
    title: str = "",
    plan: str = "",
    path: Path | None = None,
    width: float = 8.0,
    per: LossOf = "token",
) -> Figure:
    """Draw the loss of every step, and save the picture where a path is given.

    `losses` are `measured.loss` of a run's document, of which `warmup` came before the measured
    steps. `vocab_rows` counts the model's logits, padding included: guessing costs ln(vocab_rows).
    `plan` is text before the losses in the caption, `width` is in inches. The loss is `per` token
    of a text, or per sample, whose logits are its classes.

    Raises:
        InputError: the file cannot be written.
    """
    check_picture(path)
    with matplotlib.rc_context(STYLE):
        meta = {"plan": " · ".join(filter(None, [plan, caption(losses, warmup)]))}
        guess, column = math.log(vocab_rows), width - _LEFT - _RIGHT
        among = {"token": "vocabulary", "sample": "classes"}[per]
        guessing = f"guessing, ln({among}) = {guess:.4g}"
        head = head_of(title, meta, _legend(len(losses), warmup, guessing), column)
        height = head.height + _HEIGHT + _BELOW
        figure = Figure(figsize=(width, height), dpi=DPI)
        head.draw(figure, _LEFT)
        corners = (_LEFT / width, _BELOW / height, column / width, _HEIGHT / height)
        axes = figure.add_axes(corners)
        _draw(axes, losses, warmup, guess)
        axes.set_ylabel(f"loss [nats per {per}]")
    save_picture(figure, path)
    return figure


def caption(losses: Sequence[float], warmup: int) -> str:
    """First and last loss, over how many steps, and from where on it is no number."""
    steps = f"{len(losses)} {'step' if len(losses) == 1 else 'steps'}"
    text = f"loss {losses[0]:.4f} -> {losses[-1]:.4f} over {steps}"
    text += f", {warmup} of them warm-up" if warmup else ""
    lost = next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), None)
    return text if lost is None else f"{text}, not finite from step {lost} on"


def _draw(axes: Axes, losses: Sequence[float], warmup: int, guess: float) -> None:
    steps, marker = range(len(losses)), _marker(len(losses))
    axes.axhline(guess, color=_GUESS, linewidth=1.0, linestyle=(0, (5, 4)))
    if warmup:
        axes.axvspan(-0.5, warmup - 0.5, color=colours.QUIET_LANE, linewidth=0.0)
    axes.plot(steps, losses, color=_COLOUR, linewidth=1.4, marker=marker, markersize=4.0)
    if marker:
        hollow: dict[str, Any] = {"marker": marker, "markersize": 4.0, "markerfacecolor": "white"}
        axes.plot(steps[:warmup], losses[:warmup], color=_COLOUR, linestyle="", **hollow)
    axes.set_xlim(-0.5, len(losses) - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("step", labelpad=2)
    axes.grid(axis="y", color=colours.IDLE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _marker(steps: int) -> str:
    return "o" if steps <= _MARKED else ""


def _legend(steps: int, warmup: int, guessing: str) -> dict[str, Any]:
    """Handles by text."""
    marker = _marker(steps)
    legend: dict[str, Any] = {
        "loss": Line2D([], [], color=_COLOUR, linewidth=1.4, marker=marker, markersize=4.0)
    }
    if warmup:
        legend["warm-up"] = Patch(facecolor=colours.QUIET_LANE, edgecolor="#BBBBBB", linewidth=0.5)
    legend[guessing] = Line2D([], [], color=_GUESS, linewidth=1.0, linestyle=(0, (5, 4)))
    return legend


_COLOURS: Final = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7"),
    *("#E69F00", "#56B4E9", "#882255", "#4D4D4D"),
)
_LINES: Final = ("-", "--", "-.", ":")


def draw_curves(comparison: CurveComparison, path: Path | None = None) -> Figure:
    """Draw all runs, each with a colour and a dash of its own; save where a path is given.

    loss │╲ ╲                │╲╲
         │ ╲  ╲__ ddp        │ ╲╲__ ddp
         │  ╲____ server     │   ╲__ server
         └──────── seconds   └──────── samples
    """
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
        left.set_ylabel(f"{what} [nats per {comparison.per}]")
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
