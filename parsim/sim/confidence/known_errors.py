"""What measured runs say about the errors of predictions: the figures of `interval.json`.

Errors are log(measured / predicted), in units of a scale that says how hard a plan is to predict:

    scale^2 = sum over parts of (weight x share)^2      parts as in `sim/confidence/step_parts.py`

The scale's weights are one set for all runs; a group's quantiles say how well its device and
software are known; a level's factor says how many times that a question needs which is new in this
way. Computed from every shipped run (`fitting/intervals/figures.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from math import ceil, hypot, log
from typing import Any

from parsim.cost.job import EXPERTS
from parsim.cost.layer_doubt import LayerDoubt
from parsim.sim.confidence.step_parts import Parts

ANY = "any"
"""Device or software of the figures over all of them."""
CALIBRATED = "calibrated"
"""Device of the figures of machines that were calibrated before they were predicted."""
COVERED = 0.8
"""Share of measured steps that an interval is to hold."""
SHRINK = 5.0
"""Recorded runs that count as much as the shipped ones, as small groups of these do."""
SLOWER = ("skew", "pressed")
"""Parts that make steps longer and never shorter: they widen the upper half alone."""

WIDTH = "hidden_size"
"""The size whose largest value says how large the models of a group are."""

Sizes = Mapping[str, float]
Range = tuple[float, float]
Key = tuple[str, str, str]
"""Device, software and release of a group."""


def any_software(name: str) -> str:
    """All software of a kind: that of dense models, or of mixtures as the one of this name."""
    return f"{ANY}{EXPERTS}" if name.endswith(EXPERTS) else ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Scaled errors of the measured runs of one device and software, maybe of one release.

    `half` is the 80 % quantile of their size, corrected for few runs; that of CALIBRATED is of
    plain log errors. `ranges` of each size frame the runs, `systems` are theirs, `kinds` what some
    of their plans have (`kinds_of` a plan), `publishers` who measured them. `irregular` is
    the factor, above 1, by which a release differs at the least from the others that ran one of its
    plans; 0 where it is like one of them.
    """

    device: str
    software: str
    release: str = ANY
    n: int
    half: float
    ranges: Mapping[str, Range]
    systems: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    publishers: tuple[str, ...] = ()
    irregular: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """Errors of measured peaks of one software in one recompute mode, log(measured / predicted).

    `half` is the 80 % quantile of plain log errors, corrected as a `Group`'s; `ranges` frame the
    sizes of the runs.
    """

    software: str
    recompute: str
    n: int
    half: float
    ranges: Mapping[str, Range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an interval needs to know of a plan on a machine.

    `device`, `software` and `system` name what its constants are for, `model` the trunk of its
    model, `kinds` what its plan has that not every plan has; `generic` says that nobody described
    the software. `kernels` and `exchange` are standard deviations of the logarithm of the
    step by what a calibration has left open in kernels, and by how sure collectives are.
    `release` is the software's, where it is known, `publisher` who measured the run, where it is a
    published one. `doubt` is what a calibration has left open in
    whole layers, `steps` the log errors that runs recorded on the device leave.
    """

    device: str
    software: str
    system: str
    release: str = ""
    publisher: str = ""
    calibrated: bool
    generic: bool
    sizes: Sizes
    parts: Parts
    kernels: float = 0.0
    exchange: float = 0.0
    model: str = ""
    kinds: tuple[str, ...] = ()
    doubt: LayerDoubt = field(default_factory=LayerDoubt)
    steps: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestGroup:
    """The measured group nearest to a plan, and what of the plan it has seen.

    `model` says whether any run is of the plan's model, `size` whether any of the group's, of
    any release, is as wide, `new_kinds` what of the plan no run of the group has. `software` is
    "measured" here, "single" (by one publisher, who is not ours), "elsewhere" (on other devices
    alone), "described" (with runs at hand, none of this kind) or "generic" (no run is known).
    `release` is False only where one is stated and the software's runs are of other ones.
    """

    group: Group
    device: bool
    software: str
    system: bool
    release: bool = True
    model: bool = True
    size: bool = True
    new_kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """All groups, the scale's weights, the factors of LEVELS, and what distances add.

    `factors` are how many times its nearest group's half an interval is where a question is new at
    a level. `unknown_software` is what the generic stack's assumptions added, `reach` is per factor
    e outside of the ranges, `memory_reach` that of peaks, `site` what a site adds under the
    software of `sites`: halves of 80 % intervals, log errors. `models` are the trunks that some
    run has, `stacks` the software that was described with runs of it at hand, here or left out.
    """

    groups: Mapping[Key, Group]
    factors: Mapping[str, float]
    unknown_software: float
    reach: float
    memory_reach: float = 0.0
    site: float = 0.0
    sites: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    stacks: frozenset[str] = frozenset()
    memory: Mapping[tuple[str, str], MemoryGroup] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=lambda: {"kernels": 1.0})

    def scale(self, parts: Parts, *, slower: bool) -> float:
        """How hard a plan is to predict: of its upper half (`slower`) or its lower one."""
        return scale(self.weights, parts, slower=slower)

    def nearest(self, standing: Standing) -> NearestGroup:
        """The group of this device under this software, else of one of them, else of all."""
        if standing.calibrated and (CALIBRATED, ANY, ANY) in self.groups:
            group = self.groups[CALIBRATED, ANY, ANY]
            return NearestGroup(group=group, device=True, software="measured", system=True)
        away = self._away(standing)
        for key, device, software in (
            ((standing.device, standing.software, standing.release), True, "measured"),
            ((standing.device, standing.software, ANY), True, "measured"),
            ((standing.device, any_software(standing.software), ANY), True, away),
            ((standing.device, ANY, ANY), True, away),
            ((ANY, standing.software, ANY), False, "measured"),
        ):
            if key in self.groups:
                return self._compared(self.groups[key], standing, device, software)
        return self._compared(self.groups[ANY, ANY, ANY], standing, False, away)

    def _away(self, standing: Standing) -> str:
        """What is known of software that no run has on this device."""
        if (ANY, standing.software, ANY) in self.groups:
            return "elsewhere"
        measured = standing.software.removesuffix(EXPERTS) in self.stacks
        return "described" if measured and not standing.generic else "generic"

    def _compared(
        self, group: Group, standing: Standing, device: bool, software: str
    ) -> NearestGroup:
        """A group, and what of the plan it has seen.

        Runs of one publisher tell nothing of what another machine and crew make of the software:
        others are judged as if it had no run, by no less than the device's runs under any, or all
        runs where the device has none. Software that is new on the device is judged by no less
        than its own runs on others.
        """
        if software == "measured" and self._by_one_other(group, standing):
            key = (standing.device, any_software(standing.software), ANY)
            software, wider = "single", self.groups.get(key, self.groups[ANY, ANY, ANY])
            group = replace(group, half=max(group.half, wider.half))
        if software == "elsewhere":
            its_runs = self.groups[ANY, standing.software, ANY]
            group = replace(group, half=max(group.half, its_runs.half))
        measured = {key[2] for key in self.groups if key[1] == standing.software} - {ANY}
        known = software not in ("measured", "single") or not measured or not standing.release
        return NearestGroup(
            group=group,
            device=device,
            software=software,
            system=standing.system in group.systems,
            release=known or standing.release in measured,
            model=standing.model in self.models,
            size=self._as_wide(group, standing),
            new_kinds=tuple(kind for kind in standing.kinds if kind not in group.kinds),
        )

    def _as_wide(self, group: Group, standing: Standing) -> bool:
        """Whether a run, of any release, has a model at least as wide.

        Width says how large dense models are: not mixtures, whose experts do, nor networks of
        images.
        """
        releases = self.groups.get((group.device, group.software, ANY), group)
        if WIDTH not in releases.ranges or {"images", "experts"} & set(standing.kinds):
            return True
        return standing.sizes[WIDTH] <= releases.ranges[WIDTH][1]

    def _by_one_other(self, group: Group, standing: Standing) -> bool:
        """Whether all runs of a group are of one publisher, who did not measure this one."""
        return len(group.publishers) == 1 and standing.publisher not in group.publishers

    def recorded(self, shipped: float, steps: Sequence[float]) -> float:
        """Half of the interval that steps leave on a calibrated machine, ln.

        The quantile of the machine's own recorded steps, of few the largest, leans on the shipped
        one where that is wider: SHRINK runs of ours count as much as all of theirs.
        """
        if not steps:
            return shipped
        sizes, count = sorted(abs(error) for error in steps), len(steps)
        rank = min(ceil(COVERED * (count + 1)), count)
        mine = sizes[rank - 1]
        return max(mine, (count * mine + SHRINK * shipped) / (count + SHRINK))

    def factor(self, levels: Sequence[str]) -> float:
        """How many times its nearest group's half an interval is; the least known level decides."""
        return max((self.factors[level] for level in levels), default=self.factors[KNOWN])


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


def told_outside(sizes: Sizes, ranges: Mapping[str, Range], least: float) -> Iterator[str]:
    """Words for the sizes that lie outside of their ranges by more than the share `least`."""
    if sizes.get("seq_len") == 1.0:  # an image: its width and length compare with no sentence
        yield "images are no sentences: their sizes are far from all measured ones"
        return
    for name, factor in outside(sizes, ranges).items():
        if factor > 1.0 + least:
            yield f"{name} a factor {factor:.1f} outside of theirs"


@cache
def shipped_errors() -> Errors:
    """The figures of `interval.json`."""
    text = (files("parsim.sim.confidence") / "interval.json").read_text(encoding="utf-8")
    return read_errors(json.loads(text))


def read_errors(document: Mapping[str, Any]) -> Errors:
    """What `interval.json` holds."""
    groups = {}
    for entry in document["groups"]:
        names = {name: tuple(entry[name]) for name in ("systems", "kinds", "publishers")}
        group = Group(**{**entry, "ranges": _ranges(entry), **names})
        groups[group.device, group.software, group.release] = group
    figures = {name: float(document[name]) for name in ADDED}
    weights = {name: float(value) for name, value in document["weights"].items()}
    peaks = [MemoryGroup(**{**entry, "ranges": _ranges(entry)}) for entry in document["memory"]]
    memory = {(group.software, group.recompute): group for group in peaks}
    return Errors(
        groups=groups,
        weights=weights,
        memory=memory,
        factors={name: float(document["factors"][name]) for name in LEVELS},
        models=frozenset(document["models"]),
        stacks=stacks_of([*(software for _, software, _ in groups), *document["sites"]]),
        sites=frozenset(document["sites"]),
        **figures,
    )


def stacks_of(names: Iterable[str]) -> frozenset[str]:
    """The stacks of software whose mixtures count apart from its dense models."""
    return frozenset(name.removesuffix(EXPERTS) for name in names)


def _ranges(entry: Mapping[str, Any]) -> dict[str, Range]:
    return {name: (float(low), float(high)) for name, (low, high) in entry["ranges"].items()}


ADDED = ("unknown_software", "reach", "memory_reach", "site")
"""Names of the figures that distances from measured runs add, one each for all groups."""
KNOWN = "known"
"""The level at which nothing is new: other runs are of the model, the device and the release."""
LEVELS = (KNOWN, "model", "mixture", "kind", "size", "device", "software", "release")
"""Levels at which a question may be new; a mixture is a new model with experts, a size a dense
model wider than any of the nearest group, software one without runs on the device."""
