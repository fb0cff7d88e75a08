"""How sure whole layers are on a calibrated device: by what was timed, and by what was not.

    s^2 = sum over parts of (share of the step x sd)^2       forward and backward of a part together

    timed          sd of its points around their line and between repeats, as the calibration
                   measured them (`spreads`), times 1 + octaves outside of the timed sizes
    not timed      how far this device's other layers of that name are from the sum of their
                   kernels (root mean square of ln ratios), which is what the price then lacks;
                   WHOLE where it has none, at least SPLIT between ranks on processors

Source: the calibration's own file; WHOLE and SPLIT from the hardware suite's calibration, medians
of |predicted / measured - 1| of kernels' sums for 6 blocks and 2 split ones, 17 and 66 %
(`reports/hardware/cpu/report.md`), ln(1 + median) / 0.6745. That a line is as much less sure an
octave beyond its points as its points scatter is an assumption.
Leaves out: files that do not say how sure they are, to which nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import hypot, log, log2, sqrt

from parsim.cluster.evidence import CLOCK
from parsim.cluster.hardware import Device, Measured
from parsim.cluster.measured.layer_kinds import CONTEXT, DISPATCHED, SEQUENCE, SPLIT, WAITED
from parsim.cluster.measured.residuals import WHOLE_SPAN
from parsim.cost.job import Job
from parsim.cost.layer.layers import measured_kind, own_name
from parsim.cost.layer.passes import LayerCost
from parsim.cost.step.layer_table import LayerTable
from parsim.model.layer import Layer
from parsim.plan import Plan

WHOLE = 0.23
"""Doubt of a layer where none of the device was timed: ln 1.17 / 0.6745."""
SPLIT_ALONE = 0.75
"""Doubt of a split layer or sharded pass that was not timed between ranks on processors: ln 1.66 /
0.6745."""
CONTEXT_ALONE = 0.53
"""Doubt of a layer whose ranks share sequences, not timed so: steps of ten runs on two cores were
predicted 30 % short in the median, ln(1 / 0.7) / 0.6745 (docs/executor.md)."""
DISPATCHED_ALONE = 0.45
"""Doubt of a layer whose ranks share experts, not timed so: steps of two runs on two cores were
predicted 21 and 32 % short, ln(1 / 0.74) / 0.6745."""
SHARDED = "sharded"
DIRECTIONS = ("forward", "backward")
NEVER = "no calibration times such layers"
LAYER_REACH = 1.0
"""Octaves beyond the timed sizes up to which a whole layer stands for its kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A part of the plan's step whose whole layers were not timed.

    `share` of the step, `deviation` the standard deviation (ln) of its seconds.
    """

    kind: str
    share: float
    deviation: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDoubt:
    """Standard deviations of the logarithm of a step, by cause.

    `timed` by what was timed, `clock` by what all times of the device share; `missing` was not
    timed. `whole` is the share of the layers' kernels that timed whole layers stand for.
    """

    timed: float = 0.0
    clock: float = 0.0
    whole: float = 0.0
    missing: tuple[Missing, ...] = ()

    @property
    def untimed(self) -> float:
        """Standard deviation by all that was not timed."""
        return hypot(*(part.share * part.deviation for part in self.missing))


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a step: its name, make-up, share of the step, seconds of a layer by direction."""

    name: str
    make_up: str
    share: float
    seconds: tuple[float, float]

    def kind(self, plan: Plan, lines: Measured) -> str:
        """What its measured times are called, without the direction: its own make-up's, if any."""
        if self.name == SHARDED:
            return self.name
        alike = measured_kind(plan, own_name(self.name, self.make_up))
        return alike if f"{alike}_forward" in lines else measured_kind(plan, self.name)


def layer_doubt(
    job: Job, plan: Plan, layers: LayerTable, *, within: float, after: float
) -> LayerDoubt:
    """What a calibration leaves open of a plan's layers; nothing where it does not say.

    Args:
        job: model, cluster, software.
        plan: the plan.
        layers: its layers' costs, one column.
        within: share of the step that collectives inside layers and stages expose.
        after: share of the step that collectives after the last backward expose.
    """
    device = job.device
    if not device.calibrated or not device.spreads:
        return LayerDoubt()
    sharded = plan.zero_stage == 3 and plan.dp_shard > 1
    wire = within if sharded and plan.tp == 1 else 0.0
    parts = list(_parts(job, layers, max(1.0 - after - wire, 0.0)))
    if wire > 0.0:
        parts.append(_Part(SHARDED, "", wire, (0.0, 0.0)))
    kinds = [(part, part.kind(plan, _lines(job, part))) for part in parts]
    timed = [
        (part, kind, _octaves(_lines(job, part), kind, part))
        for part, kind in kinds
        if _timed(job, part, kind)
    ]
    missing = [_missing(job, part, kind) for part, kind in kinds if not _timed(job, part, kind)]
    near = (p.share for p, _, beyond in timed if beyond <= LAYER_REACH and p.name != SHARDED)
    return LayerDoubt(
        timed=hypot(*(p.share * _around(device, kind) * (1.0 + far) for p, kind, far in timed)),
        clock=device.spreads.get(CLOCK, 0.0),
        whole=min(sum(near) / max(1.0 - after - wire, 1e-9), 1.0),
        missing=tuple(sorted(missing, key=lambda part: -part.share * part.deviation)),
    )


def _lines(job: Job, part: _Part) -> Measured:
    """Where a part's measured times are written: waits for the wire are the system's."""
    return job.system.residuals if part.name == SHARDED else job.device.residuals


def _timed(job: Job, part: _Part, kind: str) -> bool:
    """Whether a calibration timed the part, which is of this kind, in both directions."""
    lines = _lines(job, part)
    return all(f"{kind}_{way}" in lines for way in DIRECTIONS)


def _missing(job: Job, part: _Part, kind: str) -> Missing:
    """A part of this kind that was not timed, and why."""
    return Missing(
        kind=kind,
        share=part.share,
        reason=job.device.unmeasured.get(kind, NEVER),
        deviation=_untimed(job, kind, part.name),
    )


def _parts(job: Job, layers: LayerTable, of_step: float) -> Iterator[_Part]:
    """Blocks by kind and the outer layers, whose shares sum to `of_step`."""
    model = job.model
    costs: list[tuple[Layer, float, LayerCost]] = [
        (kind, float(count), cost)
        for kind, count, cost in zip(model.kinds, model.kind_counts, layers.kinds, strict=True)
    ]
    ends = ((model.before, layers.before), (model.behind, layers.behind))
    outer = [(layer[0], 1.0, cost) for layer, cost in ends if layer]
    total = sum(number * sum(_seconds(cost)) for _, number, cost in (*costs, *outer))
    for layer, number, cost in (*costs, *outer):
        seconds = _seconds(cost)
        if total > 0.0 and sum(seconds) > 0.0:
            share = of_step * number * sum(seconds) / total
            yield _Part(layer.name, layer.make_up, share, seconds)


def _seconds(cost: LayerCost) -> tuple[float, float]:
    return float(cost.forward.seconds[0]), float(cost.backward.seconds[0])


def _around(device: Device, kind: str) -> float:
    """Standard deviation of a timed layer: forward and backward err together."""
    spreads = [device.spreads.get(f"{kind}_{way}", WHOLE) for way in DIRECTIONS]
    return sum(spreads) / len(spreads)


def _octaves(lines: Measured, kind: str, part: _Part) -> float:
    """How far a layer is outside of the sizes that were timed; 0 inside, or where unknown."""
    farthest = 0.0
    for way, seconds in zip(DIRECTIONS, part.seconds, strict=True):
        rows = lines[f"{kind}_{way}"]
        if seconds <= 0.0 or len(rows) < 2:
            continue
        modelled = _modelled(rows, seconds)
        low, high = rows[0][0] * WHOLE_SPAN, rows[-1][0] / WHOLE_SPAN
        farthest = max(farthest, log2(low / modelled), log2(modelled / high))
    return farthest


def _modelled(rows: tuple[tuple[float, ...], ...], seconds: float) -> float:
    """The modelled seconds that a line turned into these: coordinates are of the model."""
    return min((row[0] for row in rows), key=lambda x: abs(log(x * _ratio(rows, x) / seconds)))


def _ratio(rows: tuple[tuple[float, ...], ...], at: float) -> float:
    return next(row[-1] for row in rows if row[0] == at)


def _untimed(job: Job, kind: str, name: str) -> float:
    """Standard deviation of a layer that only the sum of its kernels is known of."""
    device = job.device
    among_processors = job.system.intra.fabric == "shared-memory"
    if kind == SHARDED:
        return SPLIT_ALONE if among_processors else 0.0
    ratios = [
        log(rows[len(rows) // 2][-1])
        for each, rows in device.residuals.items()
        if each.endswith(tuple(f"{name}_{way}" for way in DIRECTIONS)) and WAITED not in each
    ]
    usual = sqrt(sum(x * x for x in ratios) / len(ratios)) if ratios else WHOLE
    return max(usual, _between_ranks(kind)) if among_processors else usual


def _between_ranks(kind: str) -> float:
    """Doubt of what ranks on processors exchange inside a layer that was not timed between them."""
    there = kind.removeprefix(DISPATCHED)
    split = there.removeprefix(CONTEXT)
    return hypot(
        DISPATCHED_ALONE if there != kind else 0.0,
        CONTEXT_ALONE if split != there else 0.0,
        SPLIT_ALONE if split.startswith((SPLIT, SEQUENCE)) else 0.0,
    )
