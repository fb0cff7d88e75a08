"""How much of a plan's kernel time a calibration has measured, and how sure the rest leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import hypot

import numpy as np

from parsim.cluster.hardware import Measured
from parsim.cost.job import Job
from parsim.cost.kernel.residuals import residual_spread
from parsim.cost.step.plan_kernels import PlanKernel, plan_kernels
from parsim.plan import Plan

NEAR = 2.0
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
    return float(seconds[squares > NEAR**2].sum())


def coverage_notes(job: Job, plan: Plan) -> tuple[str, ...]:
    """What a reader must know where a calibration measured other shapes than the plan's."""
    shares = outside(job, plan)
    share = sum(shares.values())
    if share < WORTH:
        return ()
    most = sorted((kind for kind in shares if shares[kind] > 0.001), key=lambda kind: -shares[kind])
    named = ", ".join(f"{kind or 'scores'} {_percent(shares[kind])}" for kind in most[:3])
    return (
        f"{_percent(share)} of the step's kernel time are kernels outside of what was measured on "
        f"device {job.device.id} ({named}): model instead of measurement, which widens the "
        f"interval; `parsim calibrate --scenario` measures this plan's shapes",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= WORTH else f"{100 * share:.1f} %"
