"""Effects of the model that can be switched off, each at the level where it arises.

A switch changes a job's constants, the costs of its layers, or what the simulator is given; the
cost code itself knows no switches. All other constants stay as they are, so what changes is what
the effect is worth beside the others, not how well the model could do without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from parsim.cluster.hardware import Device, System
from parsim.cost.job import Job
from parsim.cost.layer.passes import LayerCost, Pass
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.step import StepCosts, step_costs
from parsim.plan import PlanTable

Costs = Callable[[Job, PlanTable, LayerTable], StepCosts]


SHAPE_LOSSES = tuple(
    field.name
    for field in fields(Device)
    if field.name == "gemm_k_half" or field.name.startswith("gemm_wave")
)
"""Constants of a device that make small matrix products slower than large ones."""


def _same_job(job: Job) -> Job:
    return job


def _same_layers(layers: LayerTable) -> LayerTable:
    return layers


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One effect and how it is taken out: of the job, of the layers' costs, of the step's costs."""

    name: str
    meaning: str
    job: Callable[[Job], Job] = _same_job
    layers: Callable[[LayerTable], LayerTable] = _same_layers
    costs: Costs = step_costs


NOTHING = Effect(name="full model", meaning="nothing is switched off")


def _no_traffic(job: Job) -> Job:
    return replace(job, software=replace(job.software, traffic=0.0, eager_values={}))


def _no_tensor_hides(job: Job) -> Job:
    waits = replace(job.software, tp_overlap=False, tp_overlap_backward=0.0)
    return replace(job, software=waits)


def _no_host(job: Job) -> Job:
    return replace(job, software=replace(job.software, launch_cost=0.0, microbatch_overhead=0.0))


def _no_optimizer(job: Job) -> Job:
    stack = replace(job.software, optimizer_bytes=0.0, optimizer_fixed=0.0, tensor_update=0.0)
    return replace(job, software=stack)


def _no_shape(job: Job) -> Job:
    losses: dict[str, Any] = dict.fromkeys(SHAPE_LOSSES, 0.0)
    return on_system(job, replace(job.system, device=replace(job.device, **losses)))


def _no_straggler(job: Job) -> Job:
    return on_system(job, replace(job.system, straggler_spread=0.0))


def _no_slow_rows(job: Job) -> Job:
    return replace(job, software=replace(job.software, row_rate=0.0))


def _no_expert_launches(job: Job) -> Job:
    cheap = min(job.software.launch_cost, job.software.expert_launch)
    return replace(job, software=replace(job.software, expert_launch=cheap))


def _copies(job: Job) -> Job:
    return replace(job, software=replace(job.software, expert_dispatcher="alltoall"))


def _no_graphs(job: Job) -> Job:
    return replace(job, software=replace(job.software, graphs=(), cuda_graphs=False))


def _equal_buckets(job: Job) -> Job:
    return replace(job, software=replace(job.software, ddp_buckets="torch"))


def _no_modules(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
    if not table.common.recompute_modules:
        return step_costs(job, table, layers)
    kept = table.sharing({"recompute_modules": ()})
    return step_costs(job, kept, LayerTable.of(job, kept))


def on_system(job: Job, system: System) -> Job:
    """The job on as many nodes of another system."""
    return replace(job, cluster=replace(job.cluster, system=system))


def _no_exchanges(layers: LayerTable) -> LayerTable:
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


def _no_ends(layers: LayerTable) -> LayerTable:
    nothing = LayerCost.zero(len(layers.slowest_host))
    return replace(layers, before=nothing, behind=nothing)


def _no_hops(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
    costs = step_costs(job, table, layers)
    return replace(costs, hop=np.zeros_like(costs.hop))


def _no_data_parallel(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
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


def _nothing_hides(job: Job, table: PlanTable, layers: LayerTable) -> StepCosts:
    waits = table.sharing(
        {"overlap_grad_reduce": False, "overlap_param_gather": False, "overlap_p2p": False}
    )
    return step_costs(job, waits, layers)


EFFECTS = (
    Effect(
        name="memory-bound kernels",
        meaning="norms, activations, residuals, dropout and unfused softmax move no bytes "
        "(traffic = 0); their launches stay",
        job=_no_traffic,
    ),
    Effect(
        name="TP communication",
        meaning="tensor-parallel collectives, and exchanges of context ranks, cost nothing",
        layers=_no_exchanges,
    ),
    Effect(
        name="DP communication",
        meaning="gradient reduction, parameter gathers, gradient norm and the tied embedding's "
        "all-reduce cost nothing: passes as with one replica",
        costs=_no_data_parallel,
    ),
    Effect(
        name="p2p",
        meaning="messages between pipeline stages cost nothing",
        costs=_no_hops,
    ),
    Effect(
        name="straggler",
        meaning="no growth of the step with the number of devices (straggler_spread = 0)",
        job=_no_straggler,
    ),
    Effect(
        name="launch and CPU floor",
        meaning="the host launches in no time (launch_cost = microbatch_overhead = 0)",
        job=_no_host,
    ),
    Effect(
        name="GEMM shape",
        meaning="matrix products run at one rate whatever their depth and number of tiles "
        f"({' = '.join(SHAPE_LOSSES)} = 0); whole tiles and the memory roof stay",
        job=_no_shape,
    ),
    Effect(
        name="embedding, logits, loss",
        meaning="the first and last stage hold layers alone",
        layers=_no_ends,
    ),
    Effect(
        name="optimizer",
        meaning="the update moves no bytes and takes no host time "
        "(optimizer_bytes = optimizer_fixed = 0)",
        job=_no_optimizer,
    ),
)
"""Effects that only add time: without one, no step is slower."""

OF_EXPERTS = (
    Effect(
        name="row kernels",
        meaning="kernels around experts and Mamba-2's scans move as much as the memory gives "
        "(row_rate = 0)",
        job=_no_slow_rows,
    ),
    Effect(
        name="expert launches",
        meaning="launches around experts take no more of the host than others "
        "(expert_launch = launch_cost)",
        job=_no_expert_launches,
    ),
    Effect(
        name="modules again",
        meaning="no part of a layer is computed again by name (recompute_modules empty)",
        costs=_no_modules,
    ),
)
"""Effects of mixtures and hybrids alone; they only add time too."""

OVERLAP = Effect(
    name="overlap",
    meaning="no communication hides: overlap switches off, no chunks, tp_overlap_backward = 0",
    job=_no_tensor_hides,
    costs=_nothing_hides,
)
"""The one effect that takes time away: without it, no step is faster."""

OF_RECIPES = (
    Effect(
        name="dispatchers",
        meaning="tokens go to experts by all-to-alls of copies, whatever the recipe's dispatcher",
        job=_copies,
    ),
    Effect(
        name="CUDA graphs",
        meaning="the host launches every kernel, whatever the recipe's graphs take",
        job=_no_graphs,
    ),
)
"""What recipes of mixtures choose: without one, steps may be slower or faster."""

OF_STACKS = (
    Effect(
        name="Megatron's buckets",
        meaning="every stage cuts its gradients into buckets of 160 MB, whatever the stack's rule",
        job=_equal_buckets,
    ),
)
"""What stacks choose: without one, steps may be slower or faster."""

ALL = (*EFFECTS, *OF_EXPERTS, OVERLAP, *OF_RECIPES, *OF_STACKS)
