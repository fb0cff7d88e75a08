"""Text to SI floats and back.

Inside parsim every number is in SI base units: bytes, seconds, FLOPs, bytes per second, FLOPs per
second. Text that people write carries its unit ("80GiB", "400Gb/s", "5us"); this room is where
the two meet: text or numbers enter, the other of the two leaves.
"""

from parsim.units.counts import (
    count_of,
    counted,
    format_count,
    parse_count,
    whole_number,
    without_separators,
)
from parsim.units.quantities import (
    asked_quantity,
    parse_quantity,
)
from parsim.units.sizes import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
)
from parsim.units.texts import (
    format_bytes,
    format_rate,
    format_seconds,
    format_span,
    percent,
    written_rate,
    written_time,
)

__all__ = [
    "DAY",
    "GIB",
    "HOUR",
    "KIB",
    "MIB",
    "MINUTE",
    "asked_quantity",
    "count_of",
    "counted",
    "format_bytes",
    "format_count",
    "format_rate",
    "format_seconds",
    "format_span",
    "parse_count",
    "parse_quantity",
    "percent",
    "whole_number",
    "without_separators",
    "written_rate",
    "written_time",
]
