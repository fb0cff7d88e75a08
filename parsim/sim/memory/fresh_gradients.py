"""Gradients that a step's first backward makes anew, where the optimizer lets them go.

`zero_grad(set_to_none=True)` frees the gradients of a step before the next one begins, so that with
one micro-batch nothing of them stands beside the logits. Backward makes them layer by layer, while
it frees activations; both change in proportion, so that one of its ends is highest:

    begin   all activations, logits or the first layer's buffers     gradients of the head at most
    end     activations and buffers of the last layer to go back     all gradients
            (of all layers, with the gradients of their outputs, where a stack holds these:
            `Software.holds_frozen`)

What the allocator has cached for gradients stays reserved: its segments are a tensor or a layer
each, and neither logits nor activations of a layer fit into them. They are `uncached` bytes beside
a peak at the beginning.

Source: torch.optim.Optimizer.zero_grad (torch 2.0 on). On 1 device and on 2 under FSDP, 8 peaks of
full fine-tuning of PowerLM 3B that logits make have no room for gradients
(foundation-model-stack/fms-acceleration, commit 876e2ed, scripts/benchmarks/refs). That torchtitan
prints reserved bytes is why its 8B takes 16 bytes a parameter more on 8 devices than on 128.
DDP's buckets stay between steps (torch, csrc/distributed/c10d/reducer.cpp).
Leaves out: pipelines; a table tied to the head, whose gradient is there from the beginning.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array, Flags, ratio
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import PlanTable, Recompute
from parsim.sim.memory.buffers import embedding_moment, layer_moment
from parsim.sim.memory.categories import MemoryUse


def with_fresh_gradients(
    job: Job, table: PlanTable, layers: LayerTable, use: MemoryUse, lasting: Array
) -> MemoryUse:
    """The use (p, B) at the higher end of a backward, where that is what makes gradients.

    `lasting` are the temporary bytes (p, B) that stand at any moment.
    """
    fresh = makes_gradients(job, table)
    if not fresh.any():
        return use
    begin = replace(use, gradients=use.gradients * _begun(job, use))
    end = _at_the_end(job, table, layers, use, lasting)
    first = fresh & (begin.peak >= end.peak)
    chosen = {
        name: np.where(first, getattr(begin, name), np.where(fresh, getattr(end, name), now))
        for name, now in _moving(use).items()
    }
    return replace(use, **chosen, uncached=np.where(first, use.gradients - begin.gradients, 0.0))


def makes_gradients(job: Job, table: PlanTable) -> Flags:
    """Plans whose one backward of a step makes all gradients, (B,); DDP keeps them in buckets."""
    alone = (table.pp == 1) & (table.num_microbatches == 1)
    in_buckets = (table.dp * table.cp > 1) & (table.zero_stage < 2)
    return np.asarray(alone & job.software.frees_gradients & ~in_buckets)


def _moving(use: MemoryUse) -> dict[str, Array]:
    names = ("gradients", "activations", "logits", "temporary")
    return {name: getattr(use, name) for name in names}


def _begun(job: Job, use: MemoryUse) -> Array:
    """Share of the gradients that the first layer's backward finds, (p, B); 0 at the loss."""
    trained = job.model.updated
    head = sum(layer.parameters for layer in trained.behind)
    return np.where(use.logits > 0.0, 0.0, ratio(head, trained.parameters))


def _at_the_end(
    job: Job, table: PlanTable, layers: LayerTable, use: MemoryUse, lasting: Array
) -> MemoryUse:
    """All gradients, and of activations and buffers those of one layer."""
    kept = np.minimum(use.activations, np.max(np.stack(layers.kept), axis=0))
    moment = np.maximum(layer_moment(job, table, layers), embedding_moment(job, table))
    nothing = np.zeros_like(use.logits)
    return replace(
        use,
        activations=np.where(_holds_all(job, table), use.activations, kept),
        logits=nothing,
        temporary=nothing + moment + lasting + _held_gradients(job, table),
    )


def _holds_all(job: Job, table: PlanTable) -> Flags:
    """Plans whose backward lets nothing of its recomputed layers go before it is over, (B,)."""
    frozen = job.software.holds_frozen and job.model.trained is not None
    return np.asarray(frozen & (table.zero_stage == 3) & (table.recompute == Recompute.FULL))


def _held_gradients(job: Job, table: PlanTable) -> Array:
    """Bytes of the gradients of all layers' outputs, (B,), where these are held."""
    outputs = job.model.num_layers * table.on_rank(job.model.border)
    return np.where(_holds_all(job, table), outputs * table.precision.activation, 0.0)
