"""What no device can be: numbers that a broken measurement or a slip of the pen writes down."""

from __future__ import annotations

MOST_EFFICIENCY = 1.3
"""Share of the quoted rate that a kernel may reach: parts boost above the clock their peak is
quoted at (a fit to H100 products found 1.10); beyond this the peak or the measurement is wrong."""
LONGEST = 1.0
"""Seconds that a latency or a call's overhead may have; real ones are microseconds."""

MOST_CONTENTION = 8.0
"""By what share an update may be longer beside those of other devices that share its memory."""

MOST_OVERSUBSCRIBED = 1000.0
"""Times by which a leaf's nodes may outrun its up-links; real fabrics have 1 to 16."""


def check_plausible(field: str, value: object) -> None:
    """Refuse an impossible number in a field of a device or a system.

    Raises:
        ValueError: what is wrong with it and what is allowed.
    """
    if not isinstance(value, float):
        return
    if field.endswith("efficiency") and value > MOST_EFFICIENCY:
        raise ValueError(
            f"{value:g} is more than any kernel or transfer reaches; allowed: above 0, at most "
            f"{MOST_EFFICIENCY:g} (check the peak or bandwidth that it is a share of)"
        )
    if field.endswith(("latency", "overhead", "per_rank")) and not 0.0 <= value <= LONGEST:
        raise ValueError(f"{value:g} s cannot be; allowed: 0 s to {LONGEST:g} s")
    if field == "oversubscription" and value > MOST_OVERSUBSCRIBED:
        raise ValueError(f"{value:g} cannot be; allowed: 1 to {MOST_OVERSUBSCRIBED:g}")
    if field == "rank_spread" and value > 1.0:
        raise ValueError(f"{value:g} is more than a rank's whole time; allowed: 0 to 1")
    if field == "memory_contention" and value > MOST_CONTENTION:
        raise ValueError(f"{value:g} cannot be; allowed: 0 to {MOST_CONTENTION:g}")
    if field == "interference" and value > 1.0:
        raise ValueError(f"{value:g} is more than all of the time; allowed: 0 to 1")
