"""Text to SI floats and back.

Inside parsim every number is in SI base units: bytes, seconds, FLOPs, bytes per second, FLOPs per
second. Text that people write carries its unit ("80GiB", "400Gb/s", "5us"); this module is where
the two meet.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from parsim.errors import UnitError, shown

# Seconds and bytes that have names.
MINUTE: Final = 60.0
HOUR: Final = 60.0 * MINUTE
DAY: Final = 24.0 * HOUR
KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30

_DECIMAL = ("", "K", "M", "G", "T")
_BINARY = ("Ki", "Mi", "Gi", "Ti")

# A number and the text after it. No thousands separators: "1,5 GiB" is 1.5 to some and 15 to
# others. Three digits of exponent at most, so that nobody makes us write out 1e999999999.
_QUANTITY = re.compile(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*(?P<unit>.*)",
    re.ASCII | re.DOTALL,
)


LARGE: Final = 1e6
"""Nobody writes so many of a unit with a prefix: 25000000 of a size are bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dimension:
    """What one kind of quantity is called and which units it may be written in.

    Beyond `most`, or above 0 but below `least`, it is a slip of the pen, and products of such
    numbers overflow. `factors` maps a unit as written, prefix included, to what its base unit
    counts in SI: 1/8 for bits, 1 for everything else.
    """

    noun: str
    example: str
    factors: Mapping[str, float]
    most: float
    least: float = 0.0

    def usual_unit(self, number: float) -> str:
        """What a bare number is in: the example's unit, or that without prefix of a large one."""
        return next(iter(self.factors)) if number >= LARGE else self.example.lstrip("0123456789")

    @property
    def hint(self) -> str:
        """The tail of every message: the units to choose from and one example."""
        return f"allowed units are {', '.join(self.factors)}; e.g. '{self.example}'"


def _with_prefixes(prefixes: tuple[str, ...], unit: str, factor: float = 1.0) -> dict[str, float]:
    return {prefix + unit: factor for prefix in prefixes}


_DIMENSIONS = {
    "bytes": _Dimension(
        noun="size",
        example="80GiB",
        factors=_with_prefixes((*_DECIMAL, *_BINARY), "B"),
        most=1e21,
    ),
    "bandwidth": _Dimension(
        noun="bandwidth",
        example="900GB/s",
        factors=_with_prefixes((*_DECIMAL, *_BINARY), "B/s")
        | _with_prefixes(_DECIMAL, "b/s", 1 / 8)
        | _with_prefixes(_DECIMAL, "bps", 1 / 8),
        most=1e18,
        least=1.0,
    ),
    "time": _Dimension(
        noun="time", example="5us", factors=_with_prefixes(("", "m", "u", "n"), "s"), most=1e9
    ),
    "flops": _Dimension(
        noun="compute rate",
        example="312TFLOP/s",
        factors=_with_prefixes((*_DECIMAL, "P", "E"), "FLOP/s")
        | _with_prefixes((*_DECIMAL, "P", "E"), "FLOPS"),
        most=1e24,
        least=1.0,
    ),
    "power": _Dimension(
        noun="power", example="700W", factors=_with_prefixes(("", "k", "M"), "W"), most=1e9
    ),
    "span": _Dimension(
        noun="span of time",
        example="30d",
        factors={"s": 1.0, "min": MINUTE, "h": HOUR, "d": DAY},
        most=1e11,
    ),
}


_SEPARATED = re.compile(r"(?P<digits>\d{1,3}(?:[,' ]\d{3})+)(?P<rest>(?![\d,' ]).*)", re.DOTALL)


def without_separators(text: str) -> str:
    """How a number is to be written that has separators between thousands; nothing of any other.

    It may also be a fraction (1,536 is one and a half to some), so that it is refused and not read.
    """
    match = _SEPARATED.fullmatch(str(text).strip())
    if match is None:
        return ""
    plain = re.sub("[,' ]", "", match["digits"])
    return f"; write {shown(plain + match['rest'])}, without separators between digits"


MOST_DIGITS: Final = 15
"""Nobody counts further; floats hold whole numbers of so many digits exactly."""


def whole_number(text: str) -> int | None:
    """The number that a text of digits says; None where it says none, or more than is counted."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def count_of(text: str) -> int:
    """A whole number of at least 1.

    Raises:
        ValueError: the text is none.
    """
    count = whole_number(text)
    if not count:
        raise ValueError(f"'{shown(text)}' must be a whole number of at least 1")
    return count


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
    spec = _DIMENSIONS[dimension]
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


def _same_but_for_case(unit: str, spec: _Dimension) -> str:
    """Name the allowed units that differ from this one in case only: gb/s is GB/s or Gb/s."""
    meant = [f"'{known}'" for known in spec.factors if known.lower() == unit.lower()]
    return f" (did you mean {' or '.join(meant)}?)" if meant else ""


def _scaled(number: str, unit: str) -> float:
    """Apply the prefix of the unit, rounded once.

    QuantiPhy takes the prefix for a part of the unit where the number has an exponent (1e3GiB is
    1000 "GiB"), so the exponent is written out first: 1000GiB. Spans have no prefix, and "min" is
    no milli-inch.
    """
    if unit in _DIMENSIONS["span"].factors:
        return float(Decimal(number))
    from quantiphy import Quantity

    return float(Quantity(f"{Decimal(number):f}{unit}", binary=True))


def counted(number: int, what: str) -> str:
    """Write a number of things: 1 rank, 2 ranks."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def format_bytes(amount: float) -> str:
    """Write a size in GiB with one decimal, or in MiB or B where that would show nothing."""
    for factor, unit in ((GIB, "GiB"), (MIB, "MiB")):
        if abs(amount) >= factor / 10:
            return f"{amount / factor:.1f} {unit}"
    return f"{amount:.0f} B"


SHORTEST: Final = 0.5e-9
"""Seconds below which a duration has no digit."""


def format_seconds(duration: float) -> str:
    """Write a duration with three decimals, in the largest of s, ms and us that is not below 1.

    What would be 0.000 us, such as what rounding leaves of a difference, is none.
    """
    if abs(duration) < SHORTEST:
        return "0 s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms")):
        if abs(duration) >= factor:
            return f"{duration / factor:.3f} {unit}"
    return f"{duration / 1e-6:.3f} us"


_COUNTS = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_COUNT = re.compile(r"(\d+\.?\d*(?:[eE]\+?\d{1,2})?)\s*([KMBT]?)", re.ASCII)
MOST_COUNTED = 1e18
"""More than all text there is, in tokens."""


def parse_count(text: str) -> float:
    """Read a number of tokens: `300B`, `1.4T`, `300e9` or a whole number.

    Raises:
        UnitError: the text is no number, has another suffix than K, M, B or T, or cannot be.
    """
    match = _COUNT.fullmatch(str(text).strip())
    if match is None and (hint := without_separators(text)):
        raise UnitError(f"'{shown(text)}' is not a number of tokens{hint}")
    if match is None:
        raise UnitError(
            f"'{shown(text)}' is not a number of tokens: write 300B, 1.4T or 300e9 (K M B T are "
            f"thousands, millions, billions, trillions)"
        )
    value = float(Decimal(match[1])) * _COUNTS.get(match[2], 1.0)
    if not 1.0 <= value <= MOST_COUNTED:
        raise UnitError(f"'{shown(text)}' tokens cannot be; allowed: 1 to {MOST_COUNTED:g}")
    return value


def format_count(amount: float) -> str:
    """Write a number of tokens with its suffix: 300B, 1.4T; small ones as they are."""
    for suffix, factor in reversed(_COUNTS.items()):
        if amount >= factor:
            return f"{amount / factor:.6g}{suffix}"
    return f"{amount:.6g}"


def format_span(duration: float) -> str:
    """Write a long duration in days, hours, minutes or seconds, with three figures."""
    for unit, factor, least in (("days", DAY, 2.0), ("h", HOUR, 1.0), ("min", MINUTE, 1.0)):
        amount = duration / factor
        if amount >= least:
            return f"{amount:,.0f} {unit}" if amount >= 1000.0 else f"{amount:.3g} {unit}"
    return f"{duration:.3g} s"


def percent(share: float | None, *, signed: bool = False, digits: int = 1) -> str:
    """A share, of 1, as percent text; a dash where there is none."""
    if share is None:
        return "-"
    return f"{100 * share:{'+' if signed else ''}.{digits}f} %"


def format_rate(rate: float) -> str:
    """Write a bandwidth in GB/s (decimal, as vendors do) with one decimal, small ones with four."""
    return f"{rate / 1e9:.1f} GB/s" if abs(rate) >= 1e9 else f"{rate / 1e9:.4f} GB/s"


def written_rate(rate: float) -> str:
    """Write a bandwidth as a catalog file has it, so that `parse_quantity` reads it: 12.5GB/s."""
    return f"{rate / 1e9:.6g}GB/s"


def written_time(duration: float) -> str:
    """Write a short time as a catalog file has it, so that `parse_quantity` reads it: 4.2us."""
    return f"{duration * 1e6:.6g}us"
