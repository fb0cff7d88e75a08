"""How sure a step's parts are: kernels by what was measured, collectives by their exposed share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import hypot

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cluster.hardware import Measured
from parsim.cost.collective.group_bandwidth import groups
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.measured_curve import collective_spread
from parsim.cost.collective.message import Message
from parsim.cost.data.buckets import copies_gradients
from parsim.cost.job import Job
from parsim.cost.kernel.residuals import residual_spread
from parsim.cost.step.messages import layer_messages
from parsim.cost.step.plan_kernels import PlanKernel, plan_kernels
from parsim.cost.step.stages import largest_layer_parameters
from parsim.plan import Plan, PlanTable
from parsim.units import percent

KERNEL_REACH = 2.0
"""Octaves: a shape further than a factor of 4 from every measured point is outside. Residuals were
found to reach 0.6 to 0.8 octaves in m, 0.15 to 0.4 in n, 1 to 2 in k, farther on few points."""
WORTH = 0.01
"""A smaller share of the time is not worth a note."""


def outside(job: Job, plan: Plan) -> dict[str, float]:
    """Share of a step's kernel time by kind that lies outside of what was measured.

    Empty where the device has no measured points: then everything is model, and said elsewhere.
    Leaves out: collectives, whose points do not say the size of their group.
    """
    residuals = job.device.residuals
    if not job.device.calibrated or not residuals:
        return {}
    kernels = plan_kernels(_by_constants(job), plan)
    total = sum(kernel.weight for kernel in kernels)
    kinds: dict[str, list[PlanKernel]] = {}
    for kernel in kernels:
        kinds.setdefault(kernel.kind, []).append(kernel)
    shares = {kind: _outside(residuals, kind, alike) / total for kind, alike in kinds.items()}
    return {kind: share for kind, share in shares.items() if share > 0.0}


def kernel_spread(job: Job, plan: Plan) -> float:
    """Standard deviation of the logarithm of a plan's kernel time on a calibrated device.

    sqrt( sum over kinds of ( sum of a kind's shapes: share x sd )^2 ): shapes of one kind err
    together, as one clock, library and formula price them, kinds apart from each other. Each
    shape's sd is `residual_spread`: 0 at a measured point, the kind's whole spread far from all,
    10 to 20 % where the kind was not measured. 0 where the device is not calibrated.

    Source: the posterior of the residuals' process; who errs together is an assumption, the
    careful one within a kind.
    Leaves out: one clock for all kinds; gaps between kernels.
    """
    if not job.device.calibrated:
        return 0.0
    kinds: dict[str, list[PlanKernel]] = {}
    for kernel in plan_kernels(_by_constants(job), plan):
        kinds.setdefault(kernel.kind, []).append(kernel)
    total = sum(kernel.weight for alike in kinds.values() for kernel in alike)
    spreads = (_spread(job.device.residuals, kind, alike) for kind, alike in kinds.items())
    return hypot(*spreads) / total if total > 0.0 else 0.0


def _spread(residuals: Measured, kind: str, kernels: Sequence[PlanKernel]) -> float:
    """Seconds by which the kernels of one kind are off together, one standard deviation."""
    seconds = np.array([kernel.weight for kernel in kernels])
    where = np.array([kernel.where for kernel in kernels]).T
    return float(np.sum(seconds * residual_spread(residuals, kind, *where)))


def _by_constants(job: Job) -> Job:
    """The job priced without residuals: the shares need no more, in a fifth of the time."""
    device = replace(job.device, residuals={})
    system = replace(job.system, device=device)
    return replace(job, cluster=replace(job.cluster, system=system))


def _outside(residuals: Measured, kind: str, kernels: Sequence[PlanKernel]) -> float:
    """Seconds of those kernels of one kind that no measured point is near."""
    seconds = np.array([kernel.weight for kernel in kernels])
    points = residuals.get(kind)
    if points is None:
        return float(seconds.sum())
    at = np.log2(np.array([kernel.where for kernel in kernels]))
    measured = np.log2(np.array([point[: at.shape[1]] for point in points]))
    squares = ((at[:, None, :] - measured[None, :, :]) ** 2).sum(axis=2).min(axis=1)
    return float(seconds[squares > KERNEL_REACH**2].sum())


def coverage_notes(job: Job, plan: Plan) -> tuple[str, ...]:
    """What a reader must know where a calibration measured other shapes than the plan's."""
    shares = outside(job, plan)
    share = sum(shares.values())
    if share < WORTH:
        return ()
    most = sorted((kind for kind in shares if shares[kind] > 0.001), key=lambda kind: -shares[kind])
    named = ", ".join(f"{kind or 'scores'} {_rounded(shares[kind])}" for kind in most[:3])
    return (
        f"{_rounded(share)} of the step's kernel time are kernels outside of what was measured on "
        f"device {job.device.id} ({named}): model instead of measurement, which widens the "
        f"interval; `parsim calibrate --scenario` measures this plan's shapes",
    )


def _rounded(share: float) -> str:
    return percent(share, digits=0 if share >= WORTH else 1)


def exchange_spread(job: Job, plan: Plan, *, within: float, after: float) -> float:
    """Standard deviation of the logarithm of a step by its exposed collectives.

    sqrt( (within sd)^2 + (after sd)^2 ): the calls inside layers err together, and so do those
    after the last backward, the two apart from each other; sd is `collective_spread` of the
    collective that is known least. `within` is the share of the step that collectives inside
    layers expose, `after` the share of those after the last backward.

    Source: reports/collectives.md by `collective_spread`.
    Leaves out: messages between stages; hidden collectives, whose errors may expose them.
    """
    table = PlanTable.of([plan])
    return hypot(
        within * _largest(job, _in_layers(job, plan, table)),
        after * _largest(job, _after(job, plan, table)),
    )


def _largest(job: Job, messages: Iterable[Message]) -> float:
    """The spread of the message that is known least."""
    spreads = (
        float(np.max(collective_spread(job.system, each.kind, each.size, each.where)))
        for each in messages
    )
    return max(spreads, default=0.0)


def _in_layers(job: Job, plan: Plan, table: PlanTable) -> Iterator[Message]:
    """Activations over tensor-, context- and expert-parallel ranks, parameters over shards."""
    yield from layer_messages(job, table)
    if plan.zero_stage == 3 and plan.dp_shard > 1:
        layer = largest_layer_parameters(job.model, table) * table.precision.gathered
        yield _message(job, table, "all_gather", "dp_shard", layer)


def _after(job: Job, plan: Plan, table: PlanTable) -> Iterator[Message]:
    """Gradients over replicas and shards."""
    layer = largest_layer_parameters(job.model, table)
    size = layer * table.precision.gathered * job.model.num_layers / plan.pp
    whole = plan.zero_stage == 1 and copies_gradients(job, table)
    scattered = plan.zero_stage and not whole
    kind: CollectiveKind = "reduce_scatter" if scattered else "all_reduce"
    for axis, degree in (("dp_shard", plan.dp_shard), ("dp_replicate", plan.dp_replicate)):
        if degree > 1:
            yield _message(job, table, kind, axis, size)


def _message(job: Job, table: PlanTable, kind: CollectiveKind, axis: str, size: Array) -> Message:
    """A collective of the groups of one axis of the mesh."""
    degree: Ints = getattr(table, axis)
    where = groups(job.system, size=degree, stride=table.stride(axis), world=table.world_size)
    return Message(kind=kind, axis=axis, size=size, where=where)
