"""Values that a stack has for devices by the start of their id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def for_device(values: Mapping[str, T], device_id: str) -> T:
    """The value of the longest start of the device's id, or the default."""
    starts = (key for key in values if device_id.startswith(key))
    return values[max(starts, key=len, default="default")]
