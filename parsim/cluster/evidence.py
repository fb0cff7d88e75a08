"""Reads what a calibration says of itself: how sure it is, what it could not measure, which runs.

spreads:            # standard deviation of ln(measured / modelled); clock: of the machine itself
  clock: 0.012
  block_forward: 0.03
unmeasured:         # what was not measured, and why
  sequence_block_forward: "time over: about 5 s for width 768, 2 s left"
steps:              # recorded runs: measured over predicted, before any of them corrected it
  - {date: "2026-11-22", model: gpt2, plan: "tp1 pp1 dp2 mb1 m4", split: none, sharded: false,
     ranks: 2, n: 10, forward: 1.03, backward: 1.02, optimizer: 1.3, step: 1.04, left: 1.01}
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from parsim.cluster.document import Document, Node
from parsim.errors import shown
from parsim.units import count_of

MOST_FACTOR = 10.0
"""A recorded step this far from its prediction ran on another machine, or beside other work."""
MOST_SPREAD = 5.0
"""A larger spread (ln) is no measurement: a factor of 150."""
SPLITS = ("none", "tensor", "sequence")
"""How a run's layers were split: not, over tensor ranks, with sequence parallelism too."""
CLOCK = "clock"
"""The spread of one product timed at several moments: what all times share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """A run of `parsim run` on this device, beside its prediction by this very file.

    `split` (of SPLITS) and `sharded` (ZeRO-3) are the conditions under which it says something of
    other plans. `forward`, `backward`, `optimizer` and `step` are measured over predicted seconds
    without any correction, `left` the step's with its own; `n` steps were timed.
    """

    date: str
    model: str
    plan: str
    split: str
    sharded: bool
    ranks: int
    n: int
    forward: float
    backward: float
    optimizer: float
    step: float
    left: float

    @property
    def condition(self) -> tuple[str, bool]:
        """What a plan must have in common with it to be corrected by it."""
        return self.split, self.sharded

    @property
    def words(self) -> str:
        """The run for people: date, model, plan."""
        return f"{self.date}, {self.model}, {self.plan}"


def read_spreads(document: Document, where: str, node: Node) -> Mapping[str, float]:
    """Kind to the standard deviation of its logarithmic error.

    Raises:
        ScenarioError: no mapping, or a value that is no number from 0 to MOST_SPREAD.
    """
    known = [name for name, _, _ in document.items(node, where)]
    return document.values(node, where, known, _spread)


def read_unmeasured(document: Document, where: str, node: Node) -> Mapping[str, str]:
    """What was not measured to the reason.

    Raises:
        ScenarioError: no mapping, or a reason that is empty.
    """
    known = [name for name, _, _ in document.items(node, where)]
    return document.values(node, where, known, _reason)


def read_steps(document: Document, where: str, node: Node) -> tuple[RecordedStep, ...]:
    """The recorded runs of one device.

    Raises:
        ScenarioError: no list of mappings, an unknown or missing field, an impossible value.
    """
    if node.id != "sequence":
        raise document.error(node, where, "must be a list of recorded runs, {date: ..., plan: ...}")
    return tuple(_step(document, where, entry) for entry in node.value)


def _step(document: Document, where: str, node: Node) -> RecordedStep:
    needed = tuple(field.name for field in fields(RecordedStep))
    values = document.values(node, where, needed, _value)
    missing = [word for word in needed if word not in values]
    if missing:
        raise document.error(node, where, f"has a run without {', '.join(missing)}")
    return RecordedStep(**values)


def _spread(_: str, text: str) -> float:
    value = _number(text)
    if not 0.0 <= value <= MOST_SPREAD:
        raise ValueError(f"'{shown(text)}' must be a number from 0 to {MOST_SPREAD:g}")
    return value


def _reason(_: str, text: str) -> str:
    if not text.strip():
        raise ValueError("must say why it was not measured")
    return text


def _value(word: str, text: str) -> str | float | int | bool:
    """Read a word of a recorded run by what it is."""
    if word == "date":
        return datetime.date.fromisoformat(text).isoformat()
    if word == "split" and text not in SPLITS:
        raise ValueError(f"'{shown(text)}' must be one of: {', '.join(SPLITS)}")
    if word == "sharded":
        if text not in ("true", "false"):
            raise ValueError(f"'{shown(text)}' is no truth value; allowed: true, false")
        return text == "true"
    if word in ("model", "plan", "split"):
        return text
    if word in ("ranks", "n"):
        return count_of(text)
    factor = _number(text)
    if not 1.0 / MOST_FACTOR <= factor <= MOST_FACTOR:
        raise ValueError(
            f"'{shown(text)}' must be within {1.0 / MOST_FACTOR:g} to {MOST_FACTOR:g}: measured "
            f"over predicted seconds; record the run again on a quiet machine"
        )
    return factor


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
