"""The kernels of one plan's step one by one: kind, shape, seconds, and how often a rank runs each.

The step's price (cost/layer/layers.py) is their sum; here they stay apart, for whoever asks which
of them carry the step: what a calibration should measure, and how much of a step it did measure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Num
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.update import (
    OPTIMIZER,
    gradient_passes,
    pass_time,
    updated_bytes,
    updated_parameters,
)
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.operator_parts import Exchange, Kernel, Kernels, PassPart
from parsim.cost.step.layer_table import repeated_share
from parsim.cost.step.stages import layer_counts, per_rank, stage_experts, stage_parameters
from parsim.cost.step.step import repeated_layers, stage_cut
from parsim.model.layer import Layer
from parsim.plan import Plan, PlanTable, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanKernel:
    """One shape of a kind.

    `where` are the coordinates of the kind's residuals: m, n, k; executed FLOPs and sequence
    length; bytes. `seconds` is one run, `count` how many runs a step has, mean over the pipeline's
    ranks.
    """

    kind: str
    where: tuple[float, ...]
    seconds: float
    count: float

    @property
    def weight(self) -> float:
        """Seconds of a step."""
        return self.seconds * self.count


def plan_kernels(job: Job, plan: Plan) -> tuple[PlanKernel, ...]:
    """Every distinct kernel of a step.

    Sum over layers of micro-batches x runs x seconds / pp; backward runs what the plan recomputes
    once more.

    Source: the operators' kernels (`cost/layer/operator_kernels.py`).
    Leaves out: collectives, and the copies around sharded ones.
    """
    kernels: dict[tuple[object, ...], PlanKernel] = {}
    for kernel in _all(job, plan):
        if kernel.weight <= 0.0:
            continue
        key = kernel.kind, kernel.where, kernel.seconds
        before = kernels[key].count if key in kernels else 0.0
        kernels[key] = replace(kernel, count=before + kernel.count)
    return tuple(kernels.values())


def _all(job: Job, plan: Plan) -> Iterator[PlanKernel]:
    coster, model = LayerCoster(job, PlanTable.of([plan])), job.model
    once = plan.num_microbatches / plan.pp
    full = replace(plan, recompute=Recompute.FULL, recompute_layers=0)
    for layer, whole in zip(model.kinds, _whole_layers(job, coster.table), strict=True):
        number = sum(block is layer for block in model.blocks)
        yield from _of_layers(job, plan, coster, layer, (number - whole) * once)
        yield from _of_layers(job, full, coster, layer, whole * once)
    for layer in model.ends:
        runs = dict.fromkeys(PassPart, once)
        yield from _counted(coster.kernels(layer, layer.operators), runs)
    yield from _updates(job, plan)


def _whole_layers(job: Job, table: PlanTable) -> Array:
    """Layers of each kind that the one plan of a table recomputes as a whole, (K,)."""
    again = repeated_layers(job, table)
    return np.zeros(len(job.model.kinds)) if again is None else again[:, :, 0].sum(axis=0)


def _of_layers(
    job: Job, plan: Plan, coster: LayerCoster, layer: Layer, once: float
) -> Iterator[PlanKernel]:
    """Kernels of so many runs of a kind of layer, with what the plan repeats of it."""
    runs = _runs(job, plan, once)
    yield from _counted(coster.kernels(layer, layer.operators), runs)
    if plan.recompute is not Recompute.FULL:
        share = _number(repeated_share(job, coster.table))
        again = dict.fromkeys(runs, once * share) | {PassPart.BACKWARD: 0.0}
        yield from _counted(coster.repeated(layer), again)


def _runs(job: Job, plan: Plan, once: float) -> Mapping[PassPart, float]:
    """How often a step runs each part of a layer: `LayerCost.recomputed` in numbers of runs."""
    share = _number(repeated_share(job, PlanTable.of([plan])))
    full = share * (plan.recompute is Recompute.FULL)
    selective = share * (plan.recompute is Recompute.SELECTIVE)
    half = selective * (job.software.selective == "half-products")
    return {
        PassPart.PRODUCT: once * (1.0 + full + 0.5 * half),
        PassPart.CORE: once * (1.0 + full + selective - half),
        PassPart.FORWARD: once * (1.0 + full + half),
        PassPart.BACKWARD: once,
    }


def _counted(
    parts: Iterable[Kernels | Exchange], runs: Mapping[PassPart, float]
) -> Iterator[PlanKernel]:
    """Kernels of the one plan of a table; `runs` of each part of a layer."""
    for part in parts:
        if not isinstance(part, Exchange):
            yield from (_kernel(kernel, runs[kernel.part]) for kernel in part)


def _kernel(kernel: Kernel, runs: float) -> PlanKernel:
    each = 1.0 if kernel.runs is None else _number(kernel.runs)
    return PlanKernel(
        kind=kernel.kind,
        where=tuple(map(_number, kernel.shape)),
        seconds=_number(kernel.seconds),
        count=runs * each,
    )


def _number(column: Num) -> float:
    """The one plan's entry of a column."""
    return float(np.asarray(column, dtype=np.float64).flat[0])


def _updates(job: Job, plan: Plan) -> Iterator[PlanKernel]:
    """The passes over each pipeline rank's gradients, and the update of its parameters."""
    table = PlanTable.of([plan])
    counts = layer_counts(job.model, stage_cut(job, table))
    parameters = per_rank(stage_parameters(job.model.updated, table, counts), plan.pp)
    experts = per_rank(stage_experts(job.model.updated, table, counts), plan.pp)
    data = DataParallel.of(job, table)
    mine = updated_parameters(data, parameters, experts)
    passes = gradient_passes(job, table.precision.compute).items()
    moved = {kind: each * mine for kind, each in passes if kind}
    moved[OPTIMIZER] = updated_bytes(data, parameters, experts)
    for kind, sizes in moved.items():
        for size in sizes[:, 0]:
            seconds = float(pass_time(job.device, kind, size))
            yield PlanKernel(kind=kind, where=(float(size),), seconds=seconds, count=1.0 / plan.pp)
