"""How hard a plan is to predict, and how far its sizes lie outside of those of measured runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import hypot, log

from parsim.sim.confidence.step_parts import Parts

SLOWER = ("skew", "pressed")
"""Parts that make steps longer and never shorter: they widen the upper half alone."""

Sizes = Mapping[str, float]
Range = tuple[float, float]


def scale(weights: Mapping[str, float], parts: Parts, *, slower: bool) -> float:
    """Sqrt of the sum over parts of (weight x share)^2."""
    shares = ((name, weight) for name, weight in weights.items() if slower or name not in SLOWER)
    return hypot(*(weight * parts.value(name) for name, weight in shares))


def distance(sizes: Sizes, ranges: Mapping[str, Range]) -> float:
    """Ln of the factors by which sizes lie outside of their ranges, root of the sum of squares."""
    return hypot(*(log(factor) for factor in outside(sizes, ranges).values()))


def outside(sizes: Sizes, ranges: Mapping[str, Range]) -> dict[str, float]:
    """The factor, above 1, by which each size that both have lies outside of its range."""
    factors = {
        name: max(low / sizes[name], sizes[name] / high)
        for name, (low, high) in ranges.items()
        if name in sizes
    }
    return {name: factor for name, factor in factors.items() if factor > 1.0}


def told_outside(sizes: Sizes, ranges: Mapping[str, Range], least: float) -> Iterator[str]:
    """Words for the sizes that lie outside of their ranges by more than the share `least`."""
    for name, factor in outside(sizes, ranges).items():
        if factor > 1.0 + least:
            yield f"{name} a factor {factor:.1f} outside of theirs"
