"""Wishes such as tp=4,pp=2: fields of a plan that are to have one value each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from parsim.errors import InputError, shown
from parsim.names import alternatives, matching
from parsim.plan import PlanSpace, Recompute
from parsim.plan.rules import SCHEDULE_NAMES

NUMBERS = ("tp", "pp", "dp", "cp", "ep", "microbatch_size", "v", "zero_stage", "offload_layers")
FIELDS = (*NUMBERS, "schedule", "recompute", "sequence_parallel")

Pins = Mapping[str, Any]
"""Values by field of a space, which holds them as lists of one."""


def read_pins(text: str) -> Pins:
    """Read `tp=4,pp=2,schedule=1f1b`.

    Raises:
        InputError: no pairs, an unknown field or value, or two values of one field.
    """
    pins: dict[str, Any] = {}
    for pair in text.split(","):
        name, sign, value = (part.strip() for part in pair.partition("="))
        if not sign or not name or not value:
            raise InputError(
                f"'{shown(pair.strip())}' must be FIELD=VALUE, e.g. tp=4,pp=2,recompute=full"
            )
        field = matching(name, FIELDS)
        if field is None:
            raise InputError(f"unknown field '{shown(name)}'{alternatives(name, FIELDS)}")
        if field in pins:
            raise InputError(
                f"{field}={pins[field]} and {field}={shown(value)} contradict one another; name one"
            )
        pins[field] = _value(field, value)
    return pins


def _value(field: str, text: str) -> int | str | bool | Recompute:
    if field in NUMBERS:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InputError(f"{field}={shown(text)} must be a whole number")
        return int(text)
    allowed = {
        "schedule": SCHEDULE_NAMES,
        "recompute": tuple(level.name.lower() for level in Recompute),
        "sequence_parallel": ("false", "true"),
    }[field]
    name = matching(text, allowed)
    if name is None:
        raise InputError(f"{field}={shown(text)} is unknown{alternatives(text, allowed)}")
    if field == "recompute":
        return Recompute[name.upper()]
    return name == "true" if field == "sequence_parallel" else name


def pinned(space: PlanSpace, pins: Pins) -> PlanSpace:
    """The space in which the pinned fields have one value each, whatever it was narrowed to."""
    values: dict[str, Any] = {name: (value,) for name, value in pins.items()}
    return replace(space, **values)


def pin_words(pins: Pins) -> str:
    """The pins as they were written: tp=4, pp=2."""
    return ", ".join(
        f"{name}={value.name.lower() if isinstance(value, Recompute) else str(value).lower()}"
        for name, value in pins.items()
    )
