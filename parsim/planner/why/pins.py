"""Wishes such as tp=4,pp=2: fields of a plan that are to have one value each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.errors import InputError, alternatives, matching, shown
from parsim.plan import CpCommType, PlanSpace, Recompute
from parsim.plan.names import AUTO, RECOMPUTE_MODULES, SCHEDULE_NAMES
from parsim.plan.space import FEWEST, FEWEST_WORD, Between
from parsim.space.axes import AXES, BY_NAME
from parsim.space.axis import read_order
from parsim.space.words import value_word
from parsim.units import whole_number

FIELDS = tuple(axis.name for axis in AXES)

Pins = Mapping[str, Any]
"""Values by field of a space, which holds them as lists of one."""


def read_pins(text: str) -> Pins:
    """Read pins such as `tp=4,pp=2,schedule=1f1b`.

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
        if field is None and matching(name, ("strategy", "strategies")):
            raise InputError(
                f"{name} is no axis that a wish may name; parsim guide lays all strategies side by "
                "side, and search.strategies puts some beside a search, each with its best plan"
            )
        if field is None:
            raise InputError(f"unknown field '{shown(name)}'{alternatives(name, FIELDS)}")
        if field in pins:
            raise InputError(
                f"{field}={pins[field]} and {field}={shown(value)} contradict one another; name one"
            )
        pins[field] = _value(field, value)
    return pins


def _value(field: str, text: str) -> object:
    """Read the wished value of a field by its kind."""
    kind = BY_NAME[field].kind
    if kind == "repeated" and text.lower() == FEWEST_WORD:
        return FEWEST
    if kind in ("count", "stage", "layers", "repeated"):
        number = whole_number(text)
        if number is None:
            raise InputError(f"{field}={shown(text)} must be a whole number")
        if kind == "count" and number < 1:
            raise InputError(f"{field}={shown(text)} must be at least 1")
        return number
    if kind == "order":
        return read_order(text)
    if kind == "modules":
        return () if text == "none" else tuple(_known(field, part) for part in text.split("+"))
    name = _known(field, text)
    if kind == "recompute":
        return Recompute[name.upper()]
    if kind == "exchange":
        return CpCommType[name.upper()]
    return name == "true" if kind == "flag" else name


_NAMES = {
    "schedule": (*SCHEDULE_NAMES, AUTO),
    "recompute": tuple(level.name.lower() for level in Recompute),
    "flag": ("false", "true"),
    "exchange": tuple(str(kind) for kind in CpCommType),
    "modules": RECOMPUTE_MODULES,
}
"""Names that an axis of each kind knows."""


def _known(field: str, text: str) -> str:
    """The name that a text is, in any case."""
    allowed = _NAMES[BY_NAME[field].kind]
    name = matching(text, allowed)
    if name is None:
        raise InputError(f"{field}={shown(text)} is unknown{alternatives(text, allowed)}")
    return name


def pinned(space: PlanSpace, pins: Pins) -> PlanSpace:
    """The space in which the pinned fields have one value each, whatever it was narrowed to.

    A schedule or several chunks are wished of pipelines: without one every schedule is the same.
    """
    values: dict[str, Any] = {name: (value,) for name, value in pins.items()}
    if "pp" not in pins and ("schedule" in pins or pins.get("v", 1) > 1):
        values["pp"] = _pipelines(space.pp)
    return space.with_axes(values)


def _pipelines(allowed: tuple[int, ...] | Between | None) -> tuple[int, ...] | Between:
    """The degrees above 1 of those that a space allows; any where it allows none."""
    if isinstance(allowed, Between):
        most = allowed.most if allowed.most is None or allowed.most > 1 else None
        return Between(least=max(allowed.least or 2, 2), most=most)
    return tuple(pp for pp in allowed or () if pp > 1) or Between(least=2)


def pin_words(pins: Pins) -> str:
    """The pins as they were written: tp=4, pp=2."""
    return ", ".join(f"{name}={value_word(value)}" for name, value in pins.items())
