"""The answer in a box: the plan, its step time with the 80 % interval as a bar, where things are.

╭─ gpt3-175b on 128 x dgx-a100 ─────────────────────╮
│ step time  19.832 s  18.882 s ├───●─────┤ 21.032 s │
╰────────────────────────────────────────────────────╯
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich import box
from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from parsim.report.text.prediction import fit_words, speed_unit
from parsim.report.text.tables import pairs, percent
from parsim.sim.prediction import Prediction
from parsim.units import format_bytes, format_seconds

WIDTH: Final = 96
"""Columns of the box."""
_BAR: Final = 24
"""Characters from one end of the interval's bar to the other."""


def answer_view(
    prediction: Prediction, *, plan_file: str, picture: str, title: str = ""
) -> RenderableType:
    """What one asked for, short: `plan_file` is what was read, `picture` what was written."""
    rows = pairs([*_figures(prediction), ("plan file", plan_file), ("picture", picture)])
    rows.show_header = False
    heading = Text(title) if title else None
    return Panel(rows, title=heading, title_align="left", box=box.ROUNDED, width=WIDTH)


def _figures(prediction: Prediction) -> Iterator[tuple[str, str]]:
    yield "plan", prediction.plan.label()
    yield "step time", f"{format_seconds(prediction.step_time)}  {interval_bar(prediction)}"
    speed = f"{prediction.tokens_per_second:,.0f} {speed_unit(prediction)}"
    yield "speed", f"{speed}, MFU {percent(prediction.mfu)}, bubble {_bubble(prediction)}"
    yield "memory", f"peak {format_bytes(max(prediction.peak_allocated))}: {fit_words(prediction)}"


def _bubble(prediction: Prediction) -> str:
    return f"{percent(prediction.bubble_fraction)} of the pipeline phase"


def interval_bar(prediction: Prediction) -> str:
    """The 80 % interval drawn to scale, with the prediction as a dot: `low ├──●───┤ high`."""
    interval = prediction.interval
    low, high = format_seconds(interval.low), format_seconds(interval.high)
    length = interval.high - interval.low
    share = (prediction.step_time - interval.low) / length if length > 0.0 else 0.5
    dot = min(max(round(share * _BAR), 0), _BAR)
    drawn = f"├{'─' * dot}●{'─' * (_BAR - dot)}┤"
    return f"80 %: {low} {drawn} {high}"
