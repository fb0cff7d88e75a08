"""Reads a number with its unit."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from decimal import Decimal

from parsim.errors import UnitError, shown
from parsim.units.counts import without_separators
from parsim.units.dimensions import DIMENSIONS, Dimension

# A number and the text after it. No thousands separators: "1,5 GiB" is 1.5 to some and 15 to
# others. Three digits of exponent at most, so that nobody makes us write out 1e999999999.
_QUANTITY = re.compile(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*(?P<unit>.*)",
    re.ASCII | re.DOTALL,
)


def parse_quantity(text: str, dimension: str, example: str | None = None) -> float:
    """Read a number with its unit.

    Args:
        text: what the user wrote, such as `80GiB`, `400 Gb/s` or `5us`.
        dimension: `bytes`, `bandwidth`, `time`, `flops` (FLOPs per second), `power` (watts) or
            `span` (seconds, of jobs and not of kernels: s, min, h, d).
        example: a usual value of what is asked for, for messages; None for the dimension's.

    Returns:
        The value in SI units: bytes, bytes per second, seconds, FLOPs per second or watts. Bits
        become bytes.

    Raises:
        UnitError: the text is no number, or has no unit, or one of another dimension or case.
    """
    spec = DIMENSIONS[dimension]
    if example is not None:
        spec = replace(spec, example=example)
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise UnitError(f"'{shown(text)}' is not a number with a unit: {spec.hint}")
    if hint := without_separators(text):
        raise UnitError(f"'{shown(text)}' is not a {spec.noun}{hint}")
    number, unit = match["number"], match["unit"]
    if not unit:
        unit, short = spec.usual_unit(float(number)), shown(number)
        raise UnitError(f"bare number {short}; write it with a unit, e.g. '{short}{unit}'")
    if unit not in spec.factors:
        meant = _same_but_for_case(unit, spec)
        raise UnitError(f"'{shown(text)}' is not a {spec.noun}{meant}: {spec.hint}")
    value = _scaled(number, unit) * spec.factors[unit]
    if not math.isfinite(value) or value < 0:
        raise UnitError(f"'{shown(text)}' is not a {spec.noun}: it must be finite and at least 0")
    if value > spec.most or 0.0 < value < spec.least:
        limits = f"{spec.least:g} to {spec.most:g} of its base unit"
        raise UnitError(f"'{shown(text)}' is not a {spec.noun} that can be; allowed: {limits}")
    return value


def asked_quantity(option: str, text: str, dimension: str) -> float:
    """Read what an option of the command line asks for, as `parse_quantity` does.

    Raises:
        UnitError: as there, and the message begins with the option.
    """
    try:
        return parse_quantity(text, dimension)
    except UnitError as error:
        raise UnitError(f"{option}: {error}") from None


def _same_but_for_case(unit: str, spec: Dimension) -> str:
    """Name the allowed units that differ from this one in case only: gb/s is GB/s or Gb/s."""
    meant = [f"'{known}'" for known in spec.factors if known.lower() == unit.lower()]
    return f" (did you mean {' or '.join(meant)}?)" if meant else ""


def _scaled(number: str, unit: str) -> float:
    """Apply the prefix of the unit, rounded once.

    QuantiPhy takes the prefix for a part of the unit where the number has an exponent (1e3GiB is
    1000 "GiB"), so the exponent is written out first: 1000GiB. Spans have no prefix, and "min" is
    no milli-inch.
    """
    if unit in DIMENSIONS["span"].factors:
        return float(Decimal(number))
    from quantiphy import Quantity

    return float(Quantity(f"{Decimal(number):f}{unit}", binary=True))
