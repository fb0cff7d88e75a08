"""What measured runs say about the errors of predictions: the figures of `interval.json`.

Errors are log(measured / predicted), in units of a scale that says how hard a plan is to predict:

    scale^2 = sum over parts of (weight x share)^2      parts as in `sim/step_parts.py`

The scale's weights are one set for all runs; a group's quantiles say how well its device and
software are known. Computed from every shipped run (`validation/intervals.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from math import hypot, log
from typing import Any

from parsim.sim.step_parts import Parts

ANY = "any"
"""Device or software of the figures over all of them."""
CALIBRATED = "calibrated"
"""Device of the figures of machines that were calibrated before they were predicted."""
SLOWER = ("skew", "pressed")
"""Parts that make steps longer and never shorter: they widen the upper half alone."""

Sizes = Mapping[str, float]
Range = tuple[float, float]
Key = tuple[str, str, str]
"""Device, software and release of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Scaled errors of the measured runs of one device and software, maybe of one release.

    `half` is the 80 % quantile of their size, corrected for few runs; that of CALIBRATED is of
    plain log errors. `ranges` of each size frame the runs, `systems` are theirs.
    """

    device: str
    software: str
    release: str = ANY
    n: int
    half: float
    ranges: Mapping[str, Range]
    systems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """Errors of measured peaks of one software in one recompute mode, log(measured / predicted).

    `half` is as of a `Group`, of plain log errors; `ranges` frame the sizes of the runs.
    """

    software: str
    recompute: str
    n: int
    half: float
    ranges: Mapping[str, Range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an interval needs to know of a plan on a machine.

    `device`, `software` and `system` name what its constants are for; `generic` says that nobody
    described the software. `kernels` and `exchange` are standard deviations of the logarithm of the
    step by what a calibration has left open in kernels, and by how sure collectives are.
    `release` is the software's, where it is known.
    """

    device: str
    software: str
    system: str
    release: str = ""
    calibrated: bool
    generic: bool
    sizes: Sizes
    parts: Parts
    kernels: float = 0.0
    exchange: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The nearest measured group, and what of the plan at hand it has seen.

    `software` is "measured" here, "elsewhere" (described, no run on this device) or "generic".
    `release` is False only where one is stated and the software's runs are of other ones.
    """

    group: Group
    device: bool
    software: str
    system: bool
    release: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """All groups, the scale's weights, and the log errors that each kind of distance adds.

    `unknown_device` and `unknown_software` are what predicting the runs with another device's or
    with the generic stack's constants added, `unseen_software` what fitting a described stack's
    constants without its runs did, `other_release` what releases of one software differ by; `reach`
    is per factor e outside of the ranges, `memory_reach` that of peaks. All are halves of 80 %
    intervals.
    """

    groups: Mapping[Key, Group]
    unknown_device: float
    unknown_software: float
    unseen_software: float
    other_release: float
    reach: float
    memory_reach: float = 0.0
    memory: Mapping[tuple[str, str], MemoryGroup] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=lambda: {"kernels": 1.0})

    def scale(self, parts: Parts, *, slower: bool) -> float:
        """How hard a plan is to predict: of its upper half (`slower`) or its lower one."""
        return scale(self.weights, parts, slower=slower)

    def nearest(self, where: Standing) -> Known:
        """The group of this device under this software, else of one of them, else of all."""
        if where.calibrated and (CALIBRATED, ANY, ANY) in self.groups:
            group = self.groups[CALIBRATED, ANY, ANY]
            return Known(group=group, device=True, software="measured", system=True)
        elsewhere = "generic" if where.generic else "elsewhere"
        for key, device, software in (
            ((where.device, where.software, where.release), True, "measured"),
            ((where.device, where.software, ANY), True, "measured"),
            ((where.device, ANY, ANY), True, elsewhere),
            ((ANY, where.software, ANY), False, "measured"),
        ):
            if key in self.groups:
                return self._known(self.groups[key], where, device, software)
        return self._known(self.groups[ANY, ANY, ANY], where, False, elsewhere)

    def _known(self, group: Group, where: Standing, device: bool, software: str) -> Known:
        seen = where.system in group.systems
        released = {key[2] for key in self.groups if key[1] == where.software} - {ANY}
        same = not where.release or not released or where.release in released
        return Known(group=group, device=device, software=software, system=seen, release=same)

    def software(self, how: str) -> float:
        """What is added for software that was not measured; generic is never the surer one."""
        unseen = {"measured": 0.0, "elsewhere": self.unseen_software}
        return unseen.get(how, max(self.unknown_software, self.unseen_software))


def scale(weights: Mapping[str, float], parts: Parts, *, slower: bool) -> float:
    """Sqrt of the sum over parts of (weight x share)^2."""
    shares = ((name, weight) for name, weight in weights.items() if slower or name not in SLOWER)
    return hypot(*(weight * parts.value(name) for name, weight in shares))


def distance(sizes: Sizes, ranges: Mapping[str, Range]) -> float:
    """Ln of the factors by which sizes lie outside of their ranges, root of the sum of squares."""
    return hypot(*(log(factor) for factor in outside(sizes, ranges).values()))


def outside(sizes: Sizes, ranges: Mapping[str, Range]) -> dict[str, float]:
    """The factor, above 1, by which each size lies outside of its range."""
    factors = {
        name: max(low / sizes[name], sizes[name] / high) for name, (low, high) in ranges.items()
    }
    return {name: factor for name, factor in factors.items() if factor > 1.0}


@cache
def shipped_errors() -> Errors:
    """The figures of `interval.json`."""
    text = (files("parsim.sim") / "interval.json").read_text(encoding="utf-8")
    return read_errors(json.loads(text))


def read_errors(document: Mapping[str, Any]) -> Errors:
    """What `interval.json` holds."""
    groups = {}
    for entry in document["groups"]:
        systems = tuple(entry["systems"])
        group = Group(**{**entry, "ranges": _ranges(entry), "systems": systems})
        groups[group.device, group.software, group.release] = group
    added = {name: float(document[name]) for name in ADDED}
    weights = {name: float(value) for name, value in document["weights"].items()}
    peaks = [MemoryGroup(**{**one, "ranges": _ranges(one)}) for one in document["memory"]]
    memory = {(one.software, one.recompute): one for one in peaks}
    return Errors(groups=groups, weights=weights, memory=memory, **added)


def _ranges(entry: Mapping[str, Any]) -> dict[str, Range]:
    return {name: (float(a), float(b)) for name, (a, b) in entry["ranges"].items()}


ADDED = (
    "unknown_device",
    "unknown_software",
    "unseen_software",
    "other_release",
    "reach",
    "memory_reach",
)
"""Names of the figures that stand alone."""
