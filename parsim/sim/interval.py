"""How sure a predicted step time is: an 80 % interval from the errors of published runs.

    low, high = t (exp(-z_low), exp(z_high)),   z = sqrt( (q scale)^2 + sum of added^2 )

q is the 80 % quantile of the errors' size in the nearest group that was measured: this device
under this software (of this release, where one is stated), else the device under any software, else
the software on any device, else all runs. `scale` says how hard the plan is to predict: what the
host paces, what collectives expose, 8-bit products, memory near its limit. What the plan at hand
has beyond that group is added: an unmeasured device, software, release or system, sizes outside of
the measured ones, and on a calibrated machine what its calibration left open in the kernels and
collectives of this very plan. All figures: `sim/known_errors.py`.

Leaves out: that errors of plans for one model and machine go together, so that the difference of
two plans is surer than either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, hypot

from parsim.cost.coverage import kernel_spread
from parsim.cost.exchange_spread import exchange_spread
from parsim.cost.job import Job
from parsim.cost.software import GENERIC
from parsim.cost.stages import LayerTable
from parsim.plan import Plan
from parsim.sim.known_errors import (
    ANY,
    CALIBRATED,
    Errors,
    Known,
    Standing,
    distance,
    outside,
    shipped_errors,
)
from parsim.sim.step_parts import parts_of

COVERAGE = 0.8
"""Share of measured steps that is to lie inside."""
Z80 = 1.2816
"""Half of an 80 % interval in standard deviations."""
WORTH = 0.05
"""Distances and half widths (ln) below this are not worth a word."""


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


def sizes_of(job: Job, plan: Plan) -> dict[str, float]:
    """The sizes that say how far a plan is from measured ones."""
    return {
        "devices": float(plan.world_size),
        "hidden_size": float(job.model.hidden_size),
        "seq_len": float(job.model.seq_len),
        "microbatch_tokens": plan.microbatch_size * job.model.seq_len / plan.cp,
    }


def standing(
    job: Job, plan: Plan, layers: LayerTable, breakdown: Mapping[str, float], peak: float
) -> Standing:
    """What an interval needs to know of one plan; arguments as of `parts_of`."""
    parts = parts_of(job, plan, layers, breakdown, peak)
    return Standing(
        device=job.device.id,
        software=job.practice,
        system=job.system.stands_for or job.system.id,
        calibrated=job.device.calibrated,
        generic=job.software.id == GENERIC,
        sizes=sizes_of(job, plan),
        parts=parts,
        kernels=(1.0 - parts.exchange) * kernel_spread(job, plan),
        exchange=exchange_spread(job, plan, within=parts.within, after=parts.after),
    )


def step_interval(where: Standing, step_time: float, errors: Errors | None = None) -> Interval:
    """The 80 % interval of a predicted step time, seconds."""
    errors = errors or shipped_errors()
    known = errors.nearest(where)
    more = hypot(*_added(where, known, errors).values())
    own = known.group.device == CALIBRATED
    low, high = (
        hypot(known.group.half * (1.0 if own else errors.scale(where.parts, slower=side)), more)
        for side in (False, True)
    )
    basis = "; ".join(_basis(where, known, errors))
    return Interval(low=step_time * exp(-low), high=step_time * exp(high), basis=basis)


def _added(where: Standing, known: Known, errors: Errors) -> dict[str, float]:
    """Halves of 80 % intervals, ln, by what the nearest group has not seen."""
    links_known = known.system and not where.calibrated
    return {
        "device": 0.0 if known.device else errors.unknown_device,
        "software": errors.software(known.software),
        "release": 0.0 if known.release else errors.other_release,
        "system": 0.0 if links_known else Z80 * where.exchange,
        "kernels": Z80 * where.kernels,
        "sizes": errors.reach * distance(where.sizes, known.group.ranges),
    }


def _basis(where: Standing, known: Known, errors: Errors) -> Iterator[str]:
    """What people should know of where the interval came from."""
    group = known.group
    if group.device == CALIBRATED:
        yield f"{group.n} runs on calibrated machines"
    else:
        of = "any device" if group.device == ANY else group.device
        under = "any software" if group.software == ANY else group.software
        release = "" if group.release == ANY else f" {group.release}"
        yield f"{group.n} published runs of {of} under {under}{release}"
    if not known.device:
        yield f"none of {where.device}"
    if known.software == "elsewhere":
        yield f"none of it under {where.software}"
    if known.software == "generic":
        yield f"software {where.software}: generic assumptions"
    if not known.release:
        yield f"none of release {where.release}"
    yield from _distant(where, known, errors)


def _distant(where: Standing, known: Known, errors: Errors) -> Iterator[str]:
    """Links, kernels and sizes that were not measured."""
    added = _added(where, known, errors)
    if added["system"] > 0.0 and not known.system:
        yield f"no run on system {where.system}: its links add {_percent(added['system'])}"
    elif added["system"] > 0.01:
        yield f"its collectives add {_percent(added['system'])}"
    if added["kernels"] > 0.01:
        yield f"kernels away from the calibrated ones add {_percent(added['kernels'])}"
    far = outside(where.sizes, known.group.ranges)
    for name, factor in far.items():
        if factor > 1.0 + WORTH:
            yield f"{name} a factor {factor:.1f} outside of theirs"


def _percent(half: float) -> str:
    return f"{100.0 * half:.1f} %"
