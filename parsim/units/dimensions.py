"""Kinds of quantity, and the units that each may be written in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from parsim.units.sizes import DAY, HOUR, MINUTE

_DECIMAL = ("", "K", "M", "G", "T")
_BINARY = ("Ki", "Mi", "Gi", "Ti")

LARGE: Final = 1e6
"""Nobody writes so many of a unit with a prefix: 25000000 of a size are bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
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


DIMENSIONS = {
    "bytes": Dimension(
        noun="size",
        example="80GiB",
        factors=_with_prefixes((*_DECIMAL, *_BINARY), "B"),
        most=1e21,
    ),
    "bandwidth": Dimension(
        noun="bandwidth",
        example="900GB/s",
        factors=_with_prefixes((*_DECIMAL, *_BINARY), "B/s")
        | _with_prefixes(_DECIMAL, "b/s", 1 / 8)
        | _with_prefixes(_DECIMAL, "bps", 1 / 8),
        most=1e18,
        least=1.0,
    ),
    "time": Dimension(
        noun="time", example="5us", factors=_with_prefixes(("", "m", "u", "n"), "s"), most=1e9
    ),
    "flops": Dimension(
        noun="compute rate",
        example="312TFLOP/s",
        factors=_with_prefixes((*_DECIMAL, "P", "E"), "FLOP/s")
        | _with_prefixes((*_DECIMAL, "P", "E"), "FLOPS"),
        most=1e24,
        least=1.0,
    ),
    "power": Dimension(
        noun="power", example="700W", factors=_with_prefixes(("", "k", "M"), "W"), most=1e9
    ),
    "span": Dimension(
        noun="span of time",
        example="30d",
        factors={"s": 1.0, "min": MINUTE, "h": HOUR, "d": DAY},
        most=1e11,
    ),
}
