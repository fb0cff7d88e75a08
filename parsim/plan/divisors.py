"""Divisors, and how a message lists what is allowed."""

from __future__ import annotations


def divisors(n: int, limit: int | None = None) -> list[int]:
    """Divisors of n in ascending order, up to a limit."""
    return [d for d in range(1, min(n, limit or n) + 1) if n % d == 0]


def listed(values: list[int]) -> str:
    """Numbers with commas between."""
    return ", ".join(map(str, values))
