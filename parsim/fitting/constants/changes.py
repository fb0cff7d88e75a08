"""Jobs and costs without one of their effects: what `effects.py` switches off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from parsim.cluster.hardware import Device, System
from parsim.cost.job import Job
from parsim.cost.layer.passes import LayerCost, Pass
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.step import step_costs
from parsim.plan import PlanTable

Costs = Callable[[Job, PlanTable, LayerTable], StepCosts]
"""Costs of a step, with something changed on the way."""

SHAPE_LOSSES = tuple(
    field.name
    for field in fields(Device)
    if field.name == "gemm_k_half" or field.name.startswith("gemm_wave")
)
"""Constants of a device that make small matrix products slower than large ones."""


def same_job(job: Job) -> Job:
    """The job as it is."""
    return job


def same_layers(layers: LayerTable) -> LayerTable:
    """The costs of layers as they are."""
    return layers


def no_traffic(job: Job) -> Job:
    """Passes of memory-bound kernels that move nothing."""
    return replace(job, software=replace(job.software, traffic=0.0, eager_values={}))


def no_tensor_hides(job: Job) -> Job:
    """Collectives of tensor parallelism that all wait for compute."""
    waits = replace(job.software, tp_overlap=False, tp_overlap_backward=0.0)
    return replace(job, software=waits)


def no_host(job: Job) -> Job:
    """A host that launches for nothing."""
    free = replace(job.software, launch_cost=0.0, microbatch_overhead=0.0)
    return replace(job, software=free)


def no_optimizer(job: Job) -> Job:
    """An update that moves nothing."""
    stack = replace(job.software, optimizer_bytes=0.0, optimizer_fixed=0.0, tensor_update=0.0)
    return replace(job, software=stack)


def no_shape(job: Job) -> Job:
    """Matrix products as fast as large ones, whatever their sizes."""
    losses: dict[str, Any] = dict.fromkeys(SHAPE_LOSSES, 0.0)
    return on_system(job, replace(job.system, device=replace(job.device, **losses)))


def no_straggler(job: Job) -> Job:
    """Ranks that all take equally long."""
    return on_system(job, replace(job.system, straggler_spread=0.0))


def no_slow_rows(job: Job) -> Job:
    """Kernels on rows of tokens without a rate of their own."""
    return replace(job, software=replace(job.software, row_rate=0.0))


def no_expert_launches(job: Job) -> Job:
    """Launches of experts that cost the host nothing."""
    return replace(job, software=replace(job.software, expert_launch=0.0))


def expert_copies(job: Job) -> Job:
    """Tokens sent to experts by an all-to-all of copies."""
    return replace(job, software=replace(job.software, expert_dispatcher="alltoall"))


def no_graphs(job: Job) -> Job:
    """Kernels that are launched one by one, without graphs."""
    return replace(job, software=replace(job.software, graphs=(), cuda_graphs=False))


def equal_buckets(job: Job) -> Job:
    """Gradient buckets as torch cuts them."""
    return replace(job, software=replace(job.software, ddp_buckets="torch"))


def no_modules(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
    """Layers that compute no modules again."""
    if not table.common.recompute_modules:
        return step_costs(job, table, layers)
    kept = table.sharing({"recompute_modules": ()})
    return step_costs(job, kept, LayerTable.of(job, kept))


def on_system(job: Job, system: System) -> Job:
    """The job on as many nodes of another system."""
    return replace(job, cluster=replace(job.cluster, system=system))


def no_exchanges(layers: LayerTable) -> LayerTable:
    """Layers whose collectives show nothing."""
    return replace(
        layers,
        kinds=tuple(_alone(cost) for cost in layers.kinds),
        recomputed=tuple(_shown(layer_pass) for layer_pass in layers.recomputed),
        deeper=tuple(_shown(layer_pass) for layer_pass in layers.deeper),
        before=_alone(layers.before),
        behind=_alone(layers.behind),
    )


def _alone(cost: LayerCost) -> LayerCost:
    return replace(cost, forward=_shown(cost.forward), backward=_shown(cost.backward))


def _shown(layer_pass: Pass) -> Pass:
    return replace(layer_pass, exposed=np.zeros_like(layer_pass.exposed))


def no_ends(layers: LayerTable) -> LayerTable:
    """A model without embedding and head."""
    nothing = LayerCost.zero(len(layers.slowest_host))
    return replace(layers, before=nothing, behind=nothing)


def no_hops(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
    """Messages between stages that take no time."""
    costs = step_costs(job, table, layers)
    return replace(costs, hop=np.zeros_like(costs.hop))


def no_data_parallel(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
    """Passes and reduction of the same plans with one replica; the rest of the real plans.

    Shards of the optimizer, messages, the straggler allowance and the layers' own costs stay.
    """
    ones = np.ones_like(table.dp_shard)
    # experts over all ranks of the one replica, so that nobody shares any
    spread = replace(table, ep=table.cp * table.tp, etp=ones)
    alone = replace(spread, dp_shard=ones, dp_replicate=ones, zero_stage=np.zeros_like(ones))
    real, single = step_costs(job, table, layers), step_costs(job, alone, layers)
    taken = (
        "forward",
        "backward",
        "exposed_forward",
        "exposed_backward",
        "recomputed",
        "buckets",
        "bucket_time",
        "gather",
    )
    return replace(
        real,
        norm=np.zeros_like(real.norm),
        tied=np.zeros_like(real.tied),
        **{name: getattr(single, name) for name in taken},
    )


def nothing_hides(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
    """Reductions, gathers and messages that all wait for compute."""
    waits = table.sharing(
        {"overlap_grad_reduce": False, "overlap_param_gather": False, "overlap_p2p": False}
    )
    return step_costs(job, waits, layers)
