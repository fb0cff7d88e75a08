"""How sure a predicted step time is: an 80 % interval from the errors of published runs.

    low, high = t (exp(-z_low), exp(z_high)),   z = sqrt( q^2 + sum of (weight x distance)^2 )

q are the signed 80 % quantiles of log(measured / predicted) over the runs of the nearest group that
was measured: this device under this software (runs whose host is as slow as the device apart from
the others), else the device under any software, else the software on any device, else all runs.
What the plan at hand has beyond that group widens it: an unmeasured device or software, and sizes
outside of the measured ones (devices, hidden size, sequence, tokens of a micro-batch). The figures
in `interval.json` are computed from every shipped run (`make reports`).

Leaves out: that errors of plans for one model and machine go together, so that the difference of
two plans is surer than either; plans near the memory limit, which run slower (a note says so).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import exp, hypot, log
from typing import Any

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable, host_share
from parsim.plan import Plan, PlanTable

COVERAGE = 0.8
"""Share of measured steps that is to lie inside."""
ANY = "any"
"""Device or software of the figures over all of them."""
HOST, DEVICE = "host", "device"
"""What a run waits for: host time above HOST_BOUND of the device's counts as the host."""
HOST_BOUND = 0.5
CALIBRATED = "calibrated"
"""Device of the figures of machines that were calibrated before they were predicted."""

Sizes = Mapping[str, float]
Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Errors of the measured runs of one device and software, log(measured / predicted).

    `bound` is HOST, DEVICE or ANY. `low` and `high` are the 10 % and 90 % quantiles, drawn to
    include 0 and shrunk towards those of other groups where the group is small; `ranges` of each
    size frame the runs.
    """

    device: str
    software: str
    bound: str = ANY
    n: int
    low: float
    high: float
    ranges: Mapping[str, Range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Bounds of a predicted quantity, in its unit, and in words what they rest on."""

    low: float
    high: float
    basis: str

    def covers(self, value: float) -> bool:
        """Whether a measured value lies inside."""
        return self.low <= value <= self.high

    def to_json(self) -> list[float]:
        """[low, high]."""
        return [self.low, self.high]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """All groups, and the log errors that each kind of distance adds.

    `unknown_device` and `unknown_software` are what predicting the runs with another device's or
    with the generic stack's constants added; `reach` is per factor e outside of the ranges.
    """

    groups: Mapping[tuple[str, str, str], Group]
    unknown_device: float
    unknown_software: float
    reach: float

    def nearest(self, job: Job, bound: str) -> tuple[Group, bool, bool]:
        """(group, device was measured, software was measured).

        A calibrated device's own errors are those of calibrated machines, under any software.
        """
        device, software = job.device.id, job.practice
        if job.device.calibrated and (CALIBRATED, ANY, ANY) in self.groups:
            return self.groups[CALIBRATED, ANY, ANY], True, True
        for key, known in (
            ((device, software, bound), (True, True)),
            ((device, software, ANY), (True, True)),
            ((device, ANY, ANY), (True, False)),
            ((ANY, software, ANY), (False, True)),
        ):
            if key in self.groups:
                return self.groups[key], *known
        return self.groups[ANY, ANY, ANY], False, False


def sizes_of(job: Job, plan: Plan) -> dict[str, float]:
    """The sizes that say how far a plan is from measured ones."""
    return {
        "devices": float(plan.world_size),
        "hidden_size": float(job.model.hidden_size),
        "seq_len": float(job.model.seq_len),
        "microbatch_tokens": plan.microbatch_size * job.model.seq_len / plan.cp,
    }


def distance(sizes: Sizes, ranges: Mapping[str, Range]) -> float:
    """Ln of the factors by which sizes lie outside of their ranges, root of the sum of squares."""
    outside = [
        log(max(low / sizes[name], sizes[name] / high, 1.0)) for name, (low, high) in ranges.items()
    ]
    return hypot(*outside)


def bound_of(job: Job, plan: Plan, layers: LayerTable | None = None) -> str:
    """Whether a plan's layers keep the host or the device busy longer.

    `layers` are those of this plan alone, where they are already priced.
    """
    layers = layers or LayerTable.of(job, PlanTable.of([plan]))
    return HOST if float(host_share(job, layers)[0]) > HOST_BOUND else DEVICE


def step_interval(
    job: Job,
    plan: Plan,
    step_time: float,
    *,
    bound: str | None = None,
    errors: Errors | None = None,
) -> Interval:
    """The 80 % interval of a predicted step time, seconds; `bound` as `bound_of` tells."""
    known = errors or shipped_errors()
    group, device, software = known.nearest(job, bound or bound_of(job, plan))
    far = distance(sizes_of(job, plan), group.ranges)
    more = hypot(
        0.0 if device else known.unknown_device,
        0.0 if software else known.unknown_software,
        known.reach * far,
    )
    low, high = hypot(group.low, more), hypot(group.high, more)
    basis = _basis(job, group, device, software, far)
    return Interval(low=step_time * exp(-low), high=step_time * exp(high), basis=basis)


def _basis(job: Job, group: Group, device: bool, software: bool, far: float) -> str:
    """One line for people."""
    if group.device == CALIBRATED:
        return f"{group.n} runs on calibrated machines"
    of = "any device" if group.device == ANY else group.device
    under = "any software" if group.software == ANY else group.software
    kind = {HOST: " host-bound", DEVICE: " device-bound", ANY: ""}[group.bound]
    said = f"{group.n} published{kind} runs of {of} under {under}"
    if not device:
        said += f"; none of {job.device.id}"
    if not software:
        said += f"; none under {job.practice}"
    return said + (f"; sizes a factor {exp(far):.1f} outside of theirs" if far > 0.05 else "")


@cache
def shipped_errors() -> Errors:
    """The figures of `interval.json`."""
    text = (files("parsim.sim") / "interval.json").read_text(encoding="utf-8")
    return read_errors(json.loads(text))


def read_errors(document: Mapping[str, Any]) -> Errors:
    """What `interval.json` holds."""
    groups = {}
    for entry in document["groups"]:
        ranges = {name: (float(a), float(b)) for name, (a, b) in entry["ranges"].items()}
        group = Group(**{**entry, "ranges": ranges})
        groups[group.device, group.software, group.bound] = group
    added = {name: float(document[name]) for name in _ADDED}
    return Errors(groups=groups, **added)


_ADDED = ("unknown_device", "unknown_software", "reach")
