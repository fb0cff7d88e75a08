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
left open in the kernels, whole layers (timed or not) and collectives of this very plan, its
clock's drift, and above it what an uneven load of experts would cost. All figures: `known_errors/`.

Source: split conformal prediction with scores normalised by how hard a plan is (Lei et al. 2018,
arXiv:1604.04173), of groups left out as a whole (`fitting/intervals/levels.py`).

Leaves out: that errors of plans for one model and machine go together, so that the difference of
two plans is surer than either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot

from parsim.cost.coverage import exchange_spread, kernel_spread
from parsim.cost.job import Job
from parsim.cost.layer_doubt import layer_doubt
from parsim.cost.recorded import step_errors
from parsim.cost.software import GENERIC
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.uneven_load import uneven_load
from parsim.plan import Plan, precision
from parsim.sim.confidence.basis import added_halves, basis_of
from parsim.sim.confidence.known_errors import (
    CALIBRATED,
    Errors,
    NearestGroup,
    Standing,
    distance,
    errors_of,
)
from parsim.sim.confidence.step_parts import parts_of


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
        launches=_host_doubt(job) * parts.paced,
        uneven=uneven_load(job, plan, layers),
    )


def _host_doubt(job: Job) -> float:
    """What no run of the software shows of its hosts, ln; a calibrated machine's are known."""
    known = 0.0 if job.device.calibrated else 1.0
    return known * job.software.launch_doubt(mixture=job.model.experts is not None)


def step_interval(standing: Standing, step_time: float, errors: Errors | None = None) -> Interval:
    """The 80 % interval of a predicted step time, seconds."""
    errors = errors or errors_of(standing.software)
    low, high = (standing_half(standing, errors, slower=slower) for slower in (False, True))
    basis = "; ".join(basis_of(standing, errors.nearest(standing), errors))
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
        added=hypot(*added_halves(standing, nearest, errors, slower=slower).values()),
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
