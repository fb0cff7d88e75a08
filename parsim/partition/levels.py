"""The devices that a model is cut over, level by level, and what a search of its cuts may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from parsim.errors import InputError, shown
from parsim.units import format_rate

MODES = ("pipedream", "pipedream-paper")

MOST_WORK = 2e9
"""Numbers that the program may touch: some ten seconds of it."""
EACH_SPLIT = 3000.0
"""Numbers that could be touched while the arrays of one split are made ready."""


class Level(NamedTuple):
    """Units of a level in the unit of the next one, and bytes/s between them."""

    units: int
    bandwidth: float


def rate_between(levels: Sequence[Level], first: int, last: int) -> float:
    """Bytes/s between two devices: of the outermost level on which their units differ."""
    rate, size = inf, 1
    for level in levels:
        if first // size != last // size:
            rate = level.bandwidth
        size *= level.units
    return rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the search may do and what counts.

    `transfers` lets messages between stages count, divided by `compression`; `straight` allows no
    replicas; `memory` are bytes of a device, None for any number, into which weights and
    activations of all micro-batches in flight must fit; with `stashed_alone`, as in PipeDream's
    program, all but those of the micro-batch at hand.
    """

    mode: str = "pipedream"
    transfers: bool = False
    compression: float = 1.0
    straight: bool = False
    memory: float | None = None
    stashed_alone: bool = False


def check_levels(levels: Sequence[Level], options: Options) -> None:
    """Refuse levels without devices or bandwidth, and options of no meaning.

    Raises:
        InputError: which of these it is.
    """
    if options.mode not in MODES:
        allowed = f"allowed: {', '.join(MODES)}, parsim"
        raise InputError(f"mode='{shown(options.mode)}' is unknown; {allowed}")
    if not 1.0 <= options.compression < inf:
        raise InputError(
            f"compression={options.compression:g}: allowed are finite numbers from 1 on"
        )
    if not levels:
        raise InputError("a partition needs at least one level of devices")
    for level in levels:
        if level.units < 1 or not 0.0 < level.bandwidth < inf:
            raise InputError(
                f"a level of {level.units} units at {format_rate(level.bandwidth)}; allowed: 1 and "
                f"more, and a bandwidth above 0"
            )


def check_work(count: int, levels: Sequence[Level], options: Options) -> None:
    """Refuse what would take minutes: m (m - 1) / 2 splits of n^2 parts for each first state.

    Raises:
        InputError: the program would touch more than MOST_WORK numbers for `count` states.
    """
    work = 0.0
    for number, level in enumerate(levels):
        splits = float(level.units) * (1.0 if options.straight else (level.units - 1) / 2.0)
        rows = count if number + 1 < len(levels) else 1
        work += splits * (EACH_SPLIT + count**2 * (6.0 + rows / 2.0))
    if work > MOST_WORK:
        sizes = " x ".join(str(level.units) for level in levels)
        raise InputError(
            f"{count} places to cut on {sizes} devices take {work:.1e} steps, more than "
            f"{MOST_WORK:.0e}; join layers, share the devices out to more levels, or use --straight"
        )
