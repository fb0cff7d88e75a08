"""Seconds and bytes that have names."""

from __future__ import annotations

from typing import Final

MINUTE: Final = 60.0
HOUR: Final = 60.0 * MINUTE
DAY: Final = 24.0 * HOUR
KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
