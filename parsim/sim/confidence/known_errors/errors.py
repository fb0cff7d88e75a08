"""All groups of measured runs, which of them is nearest to a plan, and how wide that makes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from parsim.cost.job import kind_of
from parsim.sim.confidence.known_errors.distances import scale
from parsim.sim.confidence.known_errors.groups import (
    ANY,
    CALIBRATED,
    Group,
    Key,
    MemoryGroup,
    NearestGroup,
    Standing,
    any_software,
)
from parsim.sim.confidence.step_parts import Parts

COVERAGE = 0.8
"""Share of measured steps that an interval is to hold."""
SHRINK = 5.0
"""Recorded runs that count as much as the shipped ones, as small groups of these do."""
WIDTH = "hidden_size"
"""The size whose largest value says how large the models of a group are."""

KNOWN = "known"
"""The level at which nothing is new: other runs are of the model, the device and the release."""
LEVELS = (KNOWN, "model", "mixture", "kind", "size", "device", "software", "release")
"""Levels at which a question may be new; a mixture is a new model with experts, a size a dense
model wider than any of the nearest group, software one without runs on the device."""


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
        measured = standing.software.removesuffix(kind_of(standing.software)) in self.stacks
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

        Width says how large dense models are: not mixtures, whose experts do, nor networks.
        """
        releases = self.groups.get((group.device, group.software, ANY), group)
        if WIDTH not in releases.ranges.keys() & standing.sizes or "experts" in standing.kinds:
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
        rank = min(ceil(COVERAGE * (count + 1)), count)
        mine = sizes[rank - 1]
        return max(mine, (count * mine + SHRINK * shipped) / (count + SHRINK))

    def factor(self, levels: Sequence[str]) -> float:
        """How many times its nearest group's half an interval is; the least known level decides."""
        return max((self.factors[level] for level in levels), default=self.factors[KNOWN])


def stacks_of(names: Iterable[str]) -> frozenset[str]:
    """The stacks of software, of which each kind of model counts apart."""
    return frozenset(name.removesuffix(kind_of(name)) for name in names)
