"""The picture of a sweep: step time and speed over its first field, a line for each of the rest.

s  │ ┬        tokens/s │        ┬  ·       bars are 80 % intervals; dotted: the first point in
   │ ┴─┬               │    ┬──┴  ·        proportion to the devices, where these differ
   │   ┴──┬            │ ┬─┴ ·
   └────── field       └────────── field
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from parsim.errors import InputError
from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.picture.scatter import COLOURS, MARKS
from parsim.sweeps import Outcome, Outcomes

SIZE: Final = (11.0, 4.8)
NUMBER: Final = re.compile(r"\d+(\.\d+)?([eE][+-]?\d+)?")
Curves = dict[str, list[tuple[float, Outcome]]]


def draw_outcomes(result: Outcomes, path: Path | None = None) -> Figure:
    """Draw all cases that can be; save the picture where a path is given.

    Raises:
        InputError: no case can be drawn, or the file cannot be written.
    """
    check_picture(path)
    curves, ticks = _curves(result)
    if not curves:
        raise InputError("no case can be drawn: none of them has a step time")
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        seconds, speed = figure.subplots(1, 2)
        for number, (label, points) in enumerate(curves.items()):
            look = {"color": COLOURS[number % len(COLOURS)], "fmt": MARKS[number % 12]}
            look["linestyle"] = "-" if _joined(result) else "none"
            _step_times(seconds, points, {**look, "label": label})
            _speeds(speed, points, look, scaling=_joined(result))
        for axes, words in ((seconds, "step time, s"), (speed, result.speed_unit)):
            axes.set(xlabel=_across_words(result), ylabel=words)
            _settle(axes, ticks)
        figure.suptitle(_title(result), fontsize="medium", x=0.01, ha="left")
        if len(curves) > 1:
            style: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": 8}
            figure.legend(*seconds.get_legend_handles_labels(), loc="outside lower center", **style)
    save_picture(figure, path)
    return figure


def _settle(axes: Axes, ticks: Sequence[tuple[float, str]]) -> None:
    """Write the values of both axes, those across aslant where they are long."""
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.set_ylim(bottom=0.0)
    axes.set_xticks([position for position, _ in ticks], [text for _, text in ticks])
    if len("".join(text for _, text in ticks)) > 40:
        for label in axes.get_xticklabels():
            label.set(rotation=15, ha="right")
    axes.grid(visible=True, color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)


def _curves(result: Outcomes) -> tuple[Curves, list[tuple[float, str]]]:
    """Points by what the other fields say, and where the first field's values stand."""
    key, followers = result.keys[0], _followers(result)
    rest = [name for name in result.keys[1:] if name not in followers]
    texts = list(dict.fromkeys(row.values[key] for row in result.rows))
    numbers = [_number(text) for text in texts]
    units = {NUMBER.sub("", text) for text in texts}
    places = dict(zip(texts, numbers, strict=True))
    if None in numbers or len(units) > 1:  # names, or numbers in several units
        places = {text: float(position) for position, text in enumerate(texts)}
    curves: Curves = {}
    for row in result.rows:
        if not row.error:
            label = ", ".join(f"{name}={row.values[name]}" for name in rest)
            curves.setdefault(label, []).append((places[row.values[key]] or 0.0, row))
    named = {text: Path(text).name if key == "file" else text for text in places}
    return curves, [(position or 0.0, named[text]) for text, position in places.items()]


def _followers(result: Outcomes) -> list[str]:
    """Fields that the first one decides, as the batch of weak scaling: they make no lines."""
    key, rest = result.keys[0], result.keys[1:]
    return [
        name
        for name in rest
        if len({(row.values[key], row.values[name]) for row in result.rows})
        == len({row.values[key] for row in result.rows})
    ]


def _across_words(result: Outcomes) -> str:
    followers = _followers(result)
    return result.keys[0] + (f" (with {', '.join(followers)})" if followers else "")


def _title(result: Outcomes) -> str:
    """The cases, and how their marks are read."""
    devices = {row.devices for row in result.rows if not row.error}
    several = len(devices) > 1 and _joined(result)
    scaling = "; dotted: the first case in proportion to the devices" if several else ""
    return f"{result.headline} (bars: 80 % intervals{scaling})"


def _number(text: str) -> float | None:
    match = NUMBER.match(text)
    return float(match[0]) if match else None


def _joined(result: Outcomes) -> bool:
    """Whether neighbouring cases are a line: steps of a field, not files or models."""
    return result.keys[0] != "file" and len(result.models) <= 1


def _step_times(axes: Axes, points: list[tuple[float, Outcome]], look: dict[str, Any]) -> None:
    below = [row.step_time_s - row.step_time_low_s for _, row in points]
    above = [row.step_time_high_s - row.step_time_s for _, row in points]
    across = [position for position, _ in points]
    up = [row.step_time_s for _, row in points]
    axes.errorbar(across, up, yerr=[below, above], capsize=3, linewidth=1.2, **look)


def _speeds(
    axes: Axes, points: list[tuple[float, Outcome]], look: dict[str, Any], *, scaling: bool
) -> None:
    """Tokens or samples a second with their interval, and the line of perfect scaling."""
    across, up = [position for position, _ in points], [row.tokens_per_s for _, row in points]
    below = [row.tokens_per_s * (1 - row.step_time_s / row.step_time_high_s) for _, row in points]
    above = [row.tokens_per_s * (row.step_time_s / row.step_time_low_s - 1) for _, row in points]
    axes.errorbar(across, up, yerr=[below, above], capsize=3, linewidth=1.2, **look)
    first = points[0][1]
    if scaling and len({row.devices for _, row in points}) > 1:
        ideal = [first.tokens_per_s * row.devices / first.devices for _, row in points]
        axes.plot(across, ideal, ":", color=look["color"], linewidth=0.9)
