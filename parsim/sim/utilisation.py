"""FLOPs that a step's devices really run, and the error of results that cannot be."""

from __future__ import annotations

from dataclasses import replace

from parsim.cluster.groups import in_groups
from parsim.cost.job import Job
from parsim.cost.layer.kept.recomputed_modules import repeated
from parsim.errors import ParsimError
from parsim.model.operators import Attention
from parsim.plan import Plan, PlanTable, Recompute


class SimulatorError(ParsimError):
    """A guard found an impossible result: a bug of parsim, never the user's input."""


def recomputed_flops(job: Job, plan: Plan) -> float:
    """FLOPs of a step's recomputation: every layer's forward, or its attention products.

    Beside those, the products of parts that the plan names.
    """
    batch, model = plan.global_batch_size, job.model
    if plan.recompute is not Recompute.FULL and plan.recompute_modules:
        parts = (
            replace(layer, parts=repeated(layer, plan.recompute_modules)) for layer in model.blocks
        )
        return float(sum(part.forward_flops(batch) for part in parts))
    if plan.recompute is Recompute.FULL:
        return float(sum(layer.forward_flops(batch) for layer in model.blocks))
    if plan.recompute is Recompute.SELECTIVE:
        cores = (op for layer in model.blocks for op in layer.operators)
        return float(sum(c.flops(batch) for c in cores if isinstance(c, Attention)))
    return 0.0


def mean_peak_flops(job: Job, plan: Plan) -> float:
    """Dense peak FLOP/s of a device, mean over all devices of the cluster."""
    products = PlanTable.of([plan]).precision.products
    groups = in_groups(job.cluster).groups
    peaks = {group.system.device.peak(products) for group in groups}
    if len(peaks) == 1:
        return peaks.pop()
    whole = sum(
        group.num_nodes * group.system.devices_per_node * group.system.device.peak(products)
        for group in groups
    )
    return whole / job.cluster.num_devices
