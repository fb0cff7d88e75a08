"""FLOPs that a step's devices really run, and the error of results that cannot be."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from parsim.cluster.groups import in_groups
from parsim.cost.job import Job
from parsim.cost.layer.kept.recomputed_modules import repeated
from parsim.cost.step.stages import plan_cut
from parsim.errors import ParsimError
from parsim.model.layer import Layer
from parsim.model.operators import Attention
from parsim.plan import Plan, PlanTable, Recompute


class SimulatorError(ParsimError):
    """A guard found an impossible result: a bug of parsim, never the user's input."""


def recomputed_flops(job: Job, plan: Plan) -> float:
    """FLOPs of a step's recomputation: every layer's forward, or its attention products.

    Beside those, the products of parts that the plan names. The first `recompute_layers` of each
    stage repeat all.
    """
    batch = plan.global_batch_size
    whole, others = _by_repeat(job, plan)
    full = float(sum(layer.forward_flops(batch) for layer in whole))
    if plan.recompute is not Recompute.FULL and plan.recompute_modules:
        names, region = plan.recompute_modules, job.software.recompute_region
        parts = (replace(each, parts=repeated(each, names, region=region)) for each in others)
        return full + float(sum(part.forward_flops(batch) for part in parts))
    if plan.recompute is Recompute.SELECTIVE:
        cores = (op for layer in others for op in layer.operators)
        return full + float(sum(c.flops(batch) for c in cores if isinstance(c, Attention)))
    return full


def _by_repeat(job: Job, plan: Plan) -> tuple[list[Layer], list[Layer]]:
    """A model's layers: those that a plan recomputes as a whole, and the others."""
    whole: list[Layer] = []
    others: list[Layer] = []
    blocks = iter(job.model.blocks)
    for size in plan_cut(plan, job.model.num_layers) if plan.recompute_layers else ():
        whole += islice(blocks, min(size, plan.recompute_layers))
        others += islice(blocks, max(size - plan.recompute_layers, 0))
    (whole if plan.recompute is Recompute.FULL else others).extend(blocks)
    return whole, others


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
