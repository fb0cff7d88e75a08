"""Effects of the model that can be switched off, each at the level where it arises.

A switch changes a job's constants, the costs of its layers, or what the simulator is given; the
cost code itself knows no switches. All other constants stay as they are, so what changes is what
the effect is worth beside the others, not how well the model could do without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.step import step_costs
from parsim.fitting.constants.changes import (
    SHAPE_LOSSES,
    Costs,
    equal_buckets,
    expert_copies,
    no_data_parallel,
    no_ends,
    no_exchanges,
    no_expert_launches,
    no_graphs,
    no_hops,
    no_host,
    no_modules,
    no_optimizer,
    no_shape,
    no_slow_rows,
    no_straggler,
    no_tensor_hides,
    no_traffic,
    nothing_hides,
    same_job,
    same_layers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One effect and how it is taken out: of the job, of the layers' costs, of the step's costs."""

    name: str
    meaning: str
    job: Callable[[Job], Job] = same_job
    layers: Callable[[LayerTable], LayerTable] = same_layers
    costs: Costs = step_costs


NOTHING = Effect(name="full model", meaning="nothing is switched off")


EFFECTS = (
    Effect(
        name="memory-bound kernels",
        meaning="norms, activations, residuals, dropout and unfused softmax move no bytes "
        "(traffic = 0); their launches stay",
        job=no_traffic,
    ),
    Effect(
        name="TP communication",
        meaning="tensor-parallel collectives, and exchanges of context ranks, cost nothing",
        layers=no_exchanges,
    ),
    Effect(
        name="DP communication",
        meaning="gradient reduction, parameter gathers, gradient norm and the tied embedding's "
        "all-reduce cost nothing: passes as with one replica",
        costs=no_data_parallel,
    ),
    Effect(
        name="p2p",
        meaning="messages between pipeline stages cost nothing",
        costs=no_hops,
    ),
    Effect(
        name="straggler",
        meaning="no growth of the step with the number of devices (straggler_spread = 0)",
        job=no_straggler,
    ),
    Effect(
        name="launch and CPU floor",
        meaning="the host launches in no time (launch_cost = microbatch_overhead = 0)",
        job=no_host,
    ),
    Effect(
        name="GEMM shape",
        meaning="matrix products run at one rate whatever their depth and number of tiles "
        f"({' = '.join(SHAPE_LOSSES)} = 0); whole tiles and the memory roof stay",
        job=no_shape,
    ),
    Effect(
        name="embedding, logits, loss",
        meaning="the first and last stage hold layers alone",
        layers=no_ends,
    ),
    Effect(
        name="optimizer",
        meaning="the update moves no bytes and takes no host time "
        "(optimizer_bytes = optimizer_fixed = 0)",
        job=no_optimizer,
    ),
)
"""Effects that only add time: without one, no step is slower."""

OF_EXPERTS = (
    Effect(
        name="row kernels",
        meaning="kernels around experts and Mamba-2's scans move as much as the memory gives "
        "(row_rate = 0)",
        job=no_slow_rows,
    ),
    Effect(
        name="expert launches",
        meaning="launches around experts take nothing of the host (expert_launch = 0)",
        job=no_expert_launches,
    ),
    Effect(
        name="modules again",
        meaning="no part of a layer is computed again by name (recompute_modules empty)",
        costs=no_modules,
    ),
)
"""Effects of mixtures and hybrids alone; they only add time too."""

OVERLAP = Effect(
    name="overlap",
    meaning="no communication hides: overlap switches off, no chunks, tp_overlap_backward = 0",
    job=no_tensor_hides,
    costs=nothing_hides,
)
"""The one effect that takes time away: without it, no step is faster."""

OF_RECIPES = (
    Effect(
        name="dispatchers",
        meaning="tokens go to experts by all-to-alls of copies, whatever the recipe's dispatcher",
        job=expert_copies,
    ),
    Effect(
        name="CUDA graphs",
        meaning="the host launches every kernel, whatever the recipe's graphs take",
        job=no_graphs,
    ),
)
"""What recipes of mixtures choose: without one, steps may be slower or faster."""

OF_STACKS = (
    Effect(
        name="Megatron's buckets",
        meaning="every stage cuts its gradients into buckets of 160 MB, whatever the stack's rule",
        job=equal_buckets,
    ),
)
"""What stacks choose: without one, steps may be slower or faster."""

ALL = (*EFFECTS, *OF_EXPERTS, OVERLAP, *OF_RECIPES, *OF_STACKS)
