"""The most important numbers of a prediction as cards, with bars drawn to scale.

| step time     | | speed          | | bubble  | | memory       |
| 19.8 s        | | 159,000 tok/s  | | 4.3 %   | | 66.0 GiB     |
| ----==o====-- | | MFU 53.6 %     | |         | | ######..|.   |
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from parsim.report.text.prediction import fit_words
from parsim.report.text.tables import amount, between
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.prediction import Prediction
from parsim.training_run.training_run import TrainingRun
from parsim.units import DAY, format_bytes, format_seconds, percent

ROOM: Final = 0.5
"""Share of the interval's length that is drawn on either side of it."""

STYLE: Final = """\
.cards { display: flex; flex-wrap: wrap; gap: 1em; margin: 1em 0; }
.card { border: 1px solid #cccccc; border-radius: 6px; padding: 0.8em 1.2em; min-width: 13em; }
.card b { display: block; font-size: 1.5em; margin: 0.15em 0; }
.card span { color: #404040; font-size: 0.9em; }
.scale { position: relative; height: 0.7em; background: #eeeeee; margin: 0.4em 0; }
.scale i { position: absolute; top: 0; bottom: 0; background: #0072b2; }
.scale i.within { background: #9ecae1; }
.scale i.tight { background: #e69f00; }
.scale i.beyond { background: #d55e00; }
.scale u { position: absolute; top: -0.2em; bottom: -0.2em; width: 3px; background: #202020; }
"""


def cards(prediction: Prediction, run: TrainingRun | None) -> str:
    """The cards of a predicted step, and of the whole run where one is asked for."""
    return f'<div class="cards">\n{"".join(_cards(prediction, run))}</div>'


def _cards(prediction: Prediction, run: TrainingRun | None) -> Iterator[str]:
    """Step time, speed, bubble, memory and what a whole run takes."""
    yield _card(
        "step time",
        format_seconds(prediction.step_time),
        f"80 % interval {between(prediction.interval)}",
        _interval_bar(prediction),
    )
    unit = prediction.speed_unit
    yield _card(
        "speed", f"{prediction.tokens_per_second:,.0f} {unit}", f"MFU {percent(prediction.mfu)}"
    )
    if not prediction.strategy:
        yield _card("bubble", percent(prediction.bubble_fraction), "of the pipeline phase")
    yield _card(
        "memory of the fullest rank",
        format_bytes(prediction.fullest.peak_allocated),
        f"of {format_bytes(prediction.fullest.usable)}: {fit_words(prediction)}",
        _memory_bar(prediction),
    )
    if run is not None:
        cost = f"{amount(run.cost.value)} US dollars" if run.cost else "no list price"
        yield _card("the whole run", f"{amount(run.elapsed.value / DAY)} days", cost)


def _card(name: str, figure: str, below: str, bar: str = "") -> str:
    head, foot = f"<span>{escape(name)}</span>", f"<span>{escape(below)}</span>"
    return f'<div class="card">{head}<b>{escape(figure)}</b>{bar}{foot}</div>\n'


def _interval_bar(prediction: Prediction) -> str:
    """The interval on a scale that is twice as long, and the prediction in it."""
    interval = prediction.interval
    length = (interval.high - interval.low) or 1.0
    share = (prediction.step_time - interval.low) / length
    whole = 1.0 + 2.0 * ROOM
    within = _part("within", ROOM / whole, 1.0 / whole)
    return f'<div class="scale">{within}{_mark((ROOM + share) / whole)}</div>'


def _memory_bar(prediction: Prediction) -> str:
    """The peak on a scale of what the device has for training, and where its margin begins."""
    usable = prediction.fullest.usable
    look = {Fit.FITS: "", Fit.TIGHT: "tight"}.get(prediction.fit, "beyond")
    allowed = prediction.margin.left(usable) / usable
    used = _part(look, 0.0, min(prediction.fullest.share, 1.0))
    return f'<div class="scale">{used}{_mark(allowed)}</div>'


def _part(look: str, start: float, length: float) -> str:
    return f'<i class="{look}" style="left: {100 * start:.1f}%; width: {100 * length:.1f}%"></i>'


def _mark(at: float) -> str:
    return f'<u style="left: {100 * at:.1f}%"></u>'
