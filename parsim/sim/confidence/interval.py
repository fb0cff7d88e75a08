"""How sure a predicted step time is: an 80 % interval from the errors of published runs.

    low, high = t (exp(-z_low), exp(z_high)),   z = sqrt( (f q scale)^2 + sum of added^2 )

q is the 80 % quantile of the errors' size in the nearest group that was measured: this device
under this software (of this release, where one is stated), else the device under any software, else
the software on any device, else all runs. `scale` says how hard the plan is to predict: what the
host paces, what collectives expose, 8-bit products, memory near its limit. f is the factor of the
level at which the question is new (a model, width, mixture, device, software, release or kind of
plan that no run of the group has; the largest of several): the one with which four of five runs lie
inside that were left out at this level. Software that one publisher alone measured here counts as
new to everybody else, and q is no less than that of the device under any: what one site reaches is
no bar for another. Software with runs on other devices alone has the larger of its own q and the
device's. Software that many sites run and each in its own way (DeepSpeed) adds what these differ
by. Added is also what sizes outside of the measured ones, links that no run has and software
without any run leave open. On a calibrated machine q is that of its own recorded steps, leaning on
shipped runs, without scale and factor; added is what its calibration
left open in the kernels, whole layers (timed or not) and collectives of this very plan, and its
clock's drift. All figures: `known_errors/`.

Source: split conformal prediction with scores normalised by how hard a plan is (Lei et al. 2018,
arXiv:1604.04173), of groups left out as a whole (`fitting/intervals/levels.py`).

Leaves out: that errors of plans for one model and machine go together, so that the difference of
two plans is surer than either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import exp, hypot

from parsim.cost.coverage import exchange_spread, kernel_spread
from parsim.cost.job import Job
from parsim.cost.layer_doubt import layer_doubt
from parsim.cost.recorded import step_errors
from parsim.cost.software import GENERIC
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import Plan, precision
from parsim.sim.confidence.known_errors import (
    ANY,
    CALIBRATED,
    Errors,
    NearestGroup,
    Standing,
    any_software,
    distance,
    errors_of,
    told_outside,
)
from parsim.sim.confidence.step_parts import parts_of
from parsim.units import counted, percent

Z80 = 1.2816
"""Half of an 80 % interval in standard deviations."""
FACTOR = 0.4
"""From this half width (ln) on it is told as a factor: 40 % below is not 40 % above."""
NAMED = 3
"""Parts that were not timed are named, the most important ones."""
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
        """Both ends, [low, high]."""
        return [self.low, self.high]


def trunk_of(job: Job) -> str:
    """What makes a model another to the figures: how many layers, how wide; a network's name."""
    if job.model.tokens == 1:
        return job.model.name
    return f"{job.model.num_layers} layers of {job.model.border // job.model.tokens}"


def kinds_of(job: Job, plan: Plan) -> tuple[str, ...]:
    """What a plan has that not every plan has, and that runs without it say little about."""
    bits = precision(plan.precision).quantization
    present = {
        "context parallelism": plan.cp > 1,
        "experts": job.model.experts is not None,
        **({f"{bits.peak} products": True} if bits else {}),
        "ZeRO-3": plan.zero_stage == 3,
        "adapters": job.model.trained is not None,
    }
    return tuple(kind for kind, has in present.items() if has)


def sizes_of(job: Job, plan: Plan) -> dict[str, float]:
    """The sizes that say how far a plan is from measured ones; a network has no one width."""
    devices = float(plan.world_size)
    if job.model.tokens == 1:
        return {"devices": devices, "microbatch_samples": float(plan.microbatch_size)}
    return {
        "devices": devices,
        "hidden_size": float(job.model.border // job.model.tokens),
        "seq_len": float(job.model.tokens),
        "microbatch_tokens": plan.microbatch_size * job.model.tokens / plan.cp,
    }


def standing_of(
    job: Job, plan: Plan, layers: LayerTable, breakdown: Mapping[str, float], peak: float
) -> Standing:
    """What an interval needs to know of one plan; the arguments are those of `parts_of`."""
    parts = parts_of(job, plan, layers, breakdown, peak)
    doubt = layer_doubt(job, plan, layers, within=parts.within, after=parts.after)
    return Standing(
        device=job.device.id,
        software=job.practice,
        system=job.system.stands_for or job.system.id,
        calibrated=job.device.calibrated,
        generic=job.software.id == GENERIC,
        sizes=sizes_of(job, plan),
        model=trunk_of(job),
        kinds=kinds_of(job, plan),
        parts=parts,
        kernels=(1.0 - parts.exchange) * (1.0 - doubt.whole) * kernel_spread(job, plan),
        exchange=exchange_spread(job, plan, within=parts.within, after=parts.after),
        doubt=doubt,
        steps=step_errors(job.device, plan),
        libraries=0.0 if job.device.calibrated else job.device.library_spread,
    )


def step_interval(standing: Standing, step_time: float, errors: Errors | None = None) -> Interval:
    """The 80 % interval of a predicted step time, seconds."""
    errors = errors or errors_of(standing.software)
    low, high = (standing_half(standing, errors, slower=slower) for slower in (False, True))
    basis = "; ".join(_basis(standing, errors.nearest(standing), errors))
    return Interval(low=step_time * exp(-low), high=step_time * exp(high), basis=basis)


def standing_half(standing: Standing, errors: Errors, *, slower: bool) -> float:
    """The upper (`slower`) or lower half of the interval, ln."""
    return half_of(standing, errors, slower=slower).value(errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What the half of an interval is made of, ln.

    `base` is the nearest group's, `levels` say at which of LEVELS the question is new (None on a
    calibrated machine), `added` holds halves by cause, and `distance` is that from measured sizes.
    """

    base: float
    levels: tuple[str, ...] | None
    added: float
    distance: float

    def value(self, errors: Errors) -> float:
        """The half, ln: the base times the level's factor, with what is added."""
        factor = 1.0 if self.levels is None else errors.factor(self.levels)
        return hypot(factor * self.base, self.added, errors.reach * self.distance)


def half_of(standing: Standing, errors: Errors, *, slower: bool) -> Half:
    """The parts of the upper (`slower`) or lower half."""
    nearest = errors.nearest(standing)
    calibrated = nearest.group.device == CALIBRATED
    if calibrated:
        base = errors.recorded(nearest.group.half, standing.steps)
    else:
        base = nearest.group.half * errors.scale(standing.parts, slower=slower)
    return Half(
        base=base,
        levels=None if calibrated else new_levels(standing, nearest),
        added=hypot(*_added(standing, nearest, errors).values()),
        distance=distance(standing.sizes, nearest.group.ranges),
    )


def new_levels(standing: Standing, nearest: NearestGroup) -> tuple[str, ...]:
    """At which of LEVELS a question is new."""
    mixture = "experts" in standing.kinds
    known = {
        "model": nearest.model or mixture,
        "size": nearest.size,
        "mixture": nearest.model or not mixture,
        "kind": not nearest.new_kinds,
        "device": nearest.device,
        "software": nearest.software == "measured",
        "release": nearest.release,
    }
    return tuple(level for level, is_known in known.items() if not is_known)


def _added(standing: Standing, nearest: NearestGroup, errors: Errors) -> dict[str, float]:
    """Halves of 80 % intervals, ln, by what neither the group nor a level's factor holds."""
    links_known = nearest.system and not standing.calibrated
    return {
        "software": errors.unknown_software if nearest.software == "generic" else 0.0,
        "site": errors.site if standing.software in errors.sites else 0.0,
        "system": 0.0 if links_known else Z80 * standing.exchange,
        "kernels": Z80 * standing.kernels,
        "layers": Z80 * standing.doubt.timed,
        "untimed": Z80 * standing.doubt.untimed,
        "clock": Z80 * standing.doubt.clock,
        "messages": Z80 * standing.messages,
        "libraries": 0.0 if nearest.device else Z80 * standing.libraries,
    }


def _basis(standing: Standing, nearest: NearestGroup, errors: Errors) -> Iterator[str]:
    """What people should know of where the interval came from."""
    group = nearest.group
    if group.device == CALIBRATED:
        ours = f" and {len(standing.steps)} recorded on this one" if standing.steps else ""
        yield f"{group.n} runs on calibrated machines{ours}"
    else:
        device = "any device" if group.device == ANY else group.device
        every = any_software(group.software)
        words = every.replace(ANY, "any software", 1)
        software = words if group.software == every else group.software
        release = "" if group.release == ANY else f" {group.release}"
        yield f"{counted(group.n, 'published run')} of {device} under {software}{release}"
    if group.irregular:
        yield (
            f"release {group.release} is irregular: one of its plans took {group.irregular:.1f} "
            "times more or less than under any other release"
        )
    if not nearest.model:
        yield f"none of a model of {standing.model}"
    if not nearest.size:
        yield "all of narrower models"
    if nearest.new_kinds:
        yield f"none with {' and '.join(nearest.new_kinds)}"
    if not nearest.device:
        yield f"none of {standing.device} among them"
    yield from _software(standing, nearest, errors)
    yield from _distant(standing, nearest, errors)


def _software(standing: Standing, nearest: NearestGroup, errors: Errors) -> Iterator[str]:
    """What of the plan's software the group has not seen."""
    if nearest.software == "single":
        yield f"all of them by {nearest.group.publishers[0]}, none by anybody else"
    if nearest.software in ("elsewhere", "described"):
        yield f"none of it under {standing.software}"
    if nearest.software == "generic" and standing.generic:
        yield f"software {GENERIC}: generic assumptions"
    elif nearest.software == "generic":
        yield f"no run of {standing.software} is known"
    if standing.software in errors.sites:
        yield f"sites differ under {standing.software}, which adds {_half_words(errors.site)}"
    if not nearest.release:
        yield f"none of release {standing.release}"


def _distant(standing: Standing, nearest: NearestGroup, errors: Errors) -> Iterator[str]:
    """Links, kernels and sizes that were not measured."""
    added = _added(standing, nearest, errors)
    if added["system"] > 0.0 and not nearest.system:
        yield f"no run on system {standing.system}: its links add {_half_words(added['system'])}"
    elif added["system"] > 0.01:
        yield f"its collectives add {_half_words(added['system'])}"
    if added["libraries"] > 0.01:
        yield f"libraries of kernels that no run has add {_half_words(added['libraries'])}"
    if added["kernels"] > 0.01:
        yield f"kernels away from the calibrated ones add {_half_words(added['kernels'])}"
    yield from _calibration_left(standing, added)
    yield from told_outside(standing.sizes, nearest.group.ranges, least=WORTH)


def _calibration_left(standing: Standing, added: Mapping[str, float]) -> Iterator[str]:
    """What the calibration itself says that it does not know."""
    if added["clock"] > 0.01:
        yield f"the machine's own drift while calibrating adds {_half_words(added['clock'])}"
    if added["layers"] > 0.01:
        yield f"scatter of the timed layers adds {_half_words(added['layers'])}"
    if added["untimed"] > 0.01:
        missing = [part for part in standing.doubt.missing if part.share > 0.005]
        named = ", ".join(
            f"{part.kind} ({100.0 * part.share:.0f} % of the step, {part.reason})"
            for part in missing[:NAMED]
        )
        yield f"whole layers that were not timed add {_half_words(added['untimed'])}: {named}"


def _half_words(half: float) -> str:
    """Half of an interval for people; where a percentage would mislead, as a factor."""
    return percent(half) if half < FACTOR else f"a factor of {exp(half):.1f}"
