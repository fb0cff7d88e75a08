"""How ranks and steps of a cluster differ: the record that a Monte Carlo of steps draws from.

Speeds are those of a rank for as long as the cluster is the same; noise is drawn for each action
of each rank by itself; a hiccup stops a host for a while, rarely; slow ranks are known ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from parsim.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Spreads of compute time. Communication keeps its length, ranks wait for each other in it.

    `speed_spread` and `noise` are standard deviations of the logarithm of a factor whose median is
    1. `hiccups` is the expected number per rank and step, `hiccup_length` seconds. `slow_ranks`
    holds (rank, factor), 1.2 for a rank that takes 20 % longer. The steps are shared out among
    `clusters` draws of all ranks' speeds: 1 is one cluster over time, many say what to expect of a
    cluster not yet known.
    """

    speed_spread: float = 0.015
    noise: float = 0.01
    hiccups: float = 0.001
    hiccup_length: float = 0.01
    slow_ranks: tuple[tuple[int, float], ...] = ()
    clusters: int = 100
    stated: frozenset[str] = field(default_factory=frozenset)

    def without(self, source: str) -> Jitter:
        """A cluster without one of SOURCES."""
        off: tuple[()] | float = () if source == "slow_ranks" else 0.0
        return replace(self, **{source: off})  # type: ignore[arg-type]

    def only(self, source: str) -> Jitter:
        """A cluster with one of SOURCES and no other."""
        alone = self
        for other in SOURCES:
            alone = alone if other == source else alone.without(other)
        return alone

    @property
    def active(self) -> tuple[str, ...]:
        """The SOURCES that are not zero."""
        quiet = self.hiccup_length == 0.0
        return tuple(
            name for name in SOURCES if getattr(self, name) and not (name == "hiccups" and quiet)
        )

    def assumptions(self) -> tuple[str, ...]:
        """One line for each number that the user did not state, with its source."""
        return tuple(source for name, source in DEFAULTS.items() if name not in self.stated)

    def check(self, world_size: int) -> None:
        """Refuse ranks that the plan does not have, and numbers that mean nothing.

        Raises:
            InputError: the message starts with `field=value`.
        """
        for name in ("speed_spread", "noise", "hiccups", "hiccup_length"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise InputError(f"{name}={value} must be finite and at least 0")
        for rank, factor in self.slow_ranks:
            if not 0 <= rank < world_size:
                raise InputError(
                    f"slow_ranks={rank} is no rank of the plan; allowed: 0 to {world_size - 1}"
                )
            if not math.isfinite(factor) or factor <= 0:
                raise InputError(f"slow_ranks={rank} has the factor {factor}; it must be above 0")


SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "speed_spread": "speed spread of ranks",
        "noise": "noise of actions",
        "hiccups": "host hiccups",
        "slow_ranks": "listed slow ranks",
    }
)
"""What makes steps differ, by the field that switches it off."""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {
        "speed_spread": "speed_spread 0.015: V100 and MI60 of one cluster vary by 8 % on average "
        "(arXiv:2208.11035); that this is +-2.7 standard deviations is an assumption: 0.08 / 5.4",
        "noise": "noise 0.01: assumption",
        "hiccups": "hiccups 0.001 per rank and step: assumption",
        "hiccup_length": "hiccup_length 10ms: assumption",
    }
)
"""Where the numbers that a user leaves out come from."""
