"""Rank orders as people write them: axes joined by hyphens, outermost first."""

from __future__ import annotations

from parsim.errors import InputError, shown
from parsim.plan.record import AXES

_SHORT = {"dp": ("dp_replicate", "dp_shard")}


def read_order(text: str) -> tuple[str, ...]:
    """Read `pp-dp-cp-tp`, where `dp` is short for dp_replicate-dp_shard.

    Raises:
        InputError: an axis is missing, named twice or unknown.
    """
    parts = [part.strip().lower() for part in text.split("-")]
    order = tuple(axis for part in parts for axis in _SHORT.get(part, (part,)))
    if sorted(order) != sorted(AXES):
        raise InputError(
            f"rank_order={shown(text)} must name each of {', '.join(AXES)} once, outermost first, "
            f"e.g. pp-dp-cp-tp (dp is short for dp_replicate-dp_shard)"
        )
    return order
