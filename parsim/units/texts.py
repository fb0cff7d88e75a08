"""Writes quantities for people, or as catalog files have them."""

from __future__ import annotations

from typing import Final

from parsim.units.sizes import DAY, GIB, HOUR, MIB, MINUTE


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
