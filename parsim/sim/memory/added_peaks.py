"""Bytes on each pipeline rank by category, at the peak, for B plans of one shape.

static (parameters, gradients, optimizer states) + activations in flight at the worst moment +
what the highest moment of a backward adds (`parsim/sim/memory/buffers.py`): logits, temporary and
communication buffers, gathered parameters; or what the optimizer's update copies beside static
bytes, where that is more. An upper bound where moments do not coincide, as with chunks of
interleaved schedules; otherwise within a percent of measured peaks.

Source: Korthikanti et al. 2022 for activations, Rajbhandari et al. 2020 (ZeRO) for shards. Leaves
out: allocator rounding and fragmentation (`parsim/sim/memory/reserved.py`), the CUDA context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from parsim.arrays import Array, Flags, Index, ratio
from parsim.cost.data.buckets import copies_gradients
from parsim.cost.data.static_bytes import Weights, host_static_bytes, static_bytes
from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import buffered_bytes
from parsim.cost.step.stages import layer_counts
from parsim.cost.step.step import stage_cut
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.memory.buffers import (
    communication_bytes,
    embedding_moment,
    gathered_bytes,
    head_moment,
    layer_moment,
    logit_values,
    placeholder_bytes,
)
from parsim.sim.memory.categories import CATEGORIES, MemoryUse
from parsim.sim.memory.fresh_gradients import with_fresh_gradients
from parsim.sim.memory.in_flight import guest_bytes, in_flight_and_whole
from parsim.sim.memory.layer_moments import stage_again
from parsim.sim.memory.stage_buffers import stage_buffers
from parsim.sim.memory.update_moment import moment_lists, update_copies
from parsim.sim.step.kept_bytes import stage_kept
from parsim.sim.step.schedule_costs import on_ranks


def memory_use(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    costs: StepCosts,
    schedule: Schedule,
) -> MemoryUse:
    """Bytes of every category on every pipeline rank."""
    weights, trained, originals = weights_of_ranks(costs, schedule)
    parameters, gradients, optimizer = static_bytes(job, table, weights, trained, originals)
    counts = layer_counts(job.model, stage_cut(job, table))
    with_blocks = ranks_with_blocks(schedule.in_copies(counts), schedule)
    backward = _in_backward(job, table, layers, schedule, counts, with_blocks)
    use = MemoryUse(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        communication=communication_bytes(job, table, trained.parameters, schedule)
        + stage_buffers(job, table, backward["in_flight"], schedule),
        gathered=gathered_bytes(job, table, schedule, with_blocks),
        uncached=np.zeros_like(weights.parameters),
        on_host=host_static_bytes(job, table, trained),
        **backward,
    )
    lasting = lasting_bytes(job, table, with_blocks)
    lasting = lasting + with_blocks[:, None] * buffered_bytes(job, table, layers)
    use = with_fresh_gradients(job, table, layers, use, lasting)
    return _with_update(job, table, use, gradients, trained.shared_out(table), schedule)


def _with_update(
    job: Job,
    table: PlanTable,
    use: MemoryUse,
    gradients: Array,
    parts: tuple[tuple[Array, Index], ...],
    schedule: Schedule,
) -> MemoryUse:
    """The use, or on ranks where it is higher that of an update that copies gradients.

    `gradients` are all bytes of them, (p, B), `parts` parameters of each rank, (p, B), with how
    many ranks share them out.
    """
    made = (
        update_copies(job, table, part, over) + moment_lists(job, table, part, over)
        for part, over in parts
    )
    copies = np.asarray(sum(made))
    if not np.any(copies):
        return use
    by_rank = np.sum([part for part, _ in parts], axis=0)
    left = ratio(_left_at_update(job, table, parts), by_rank)
    counts = layer_counts(job.model, stage_cut(job, table))
    with_blocks = ranks_with_blocks(schedule.in_copies(counts), schedule)
    update = {
        "parameters": use.parameters,
        "gradients": gradients * left,
        "optimizer": use.optimizer,
        "temporary": copies + lasting_bytes(job, table, with_blocks),
    }
    return _or_update(use, update, copies, schedule)


def weights_of_ranks(costs: StepCosts, schedule: Schedule) -> tuple[Weights, Weights, Array | None]:
    """Parameters on each rank, (p, B), those with gradients, and originals of trained copies."""

    def on_rank(stages: Array) -> Array:
        return on_ranks(stages, schedule)

    weights = costs.weights.by(on_rank)
    alike = costs.trained is costs.parameters
    originals = None if costs.originals is None else on_rank(costs.originals)
    return weights, weights if alike else costs.updated.by(on_rank), originals


def _in_backward(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    schedule: Schedule,
    counts: Array,
    with_blocks: Flags,
) -> dict[str, Array]:
    """What stands beside the static bytes at the highest moment of a backward, and in flight."""
    kept = schedule.in_copies(stage_kept(job, table, layers, counts))
    in_flight, whole = in_flight_and_whole(job, table, kept, schedule)
    logits, temporary = buffer_bytes(job, table, layers, schedule, (kept, whole), with_blocks)
    temporary = temporary + stage_again(job, table, layers, counts, schedule)
    temporary = temporary + with_blocks[:, None] * buffered_bytes(job, table, layers)
    return {
        "activations": on_ranks(in_flight * kept, schedule) + guest_bytes(kept, schedule),
        "logits": logits,
        "temporary": temporary,
        "in_flight": in_flight,
    }


def _left_at_update(job: Job, table: PlanTable, parts: Iterable[tuple[Array, Index]]) -> Array:
    """Parameters whose gradients are left at the update, (p, B).

    Under ZeRO-1 those of other ranks' shards are gone, unless a sum keeps them.
    """
    freed = (table.zero_stage == 1) & (not copies_gradients(job, table))
    return np.asarray(sum(part / np.where(freed, over, 1) for part, over in parts))


def _or_update(
    use: MemoryUse, update: Mapping[str, Array], copies: Array, schedule: Schedule
) -> MemoryUse:
    """The higher of a backward's highest moment and the update's, rank by rank, plan by plan.

    The `update` holds bytes (p, B) by category, `copies` (p, B) of gradients among them.
    """
    total = np.sum(list(update.values()), axis=0)
    higher, nothing = total > use.peak, np.zeros_like(total)
    now = {
        name: np.where(higher, update.get(name, nothing), getattr(use, name)) for name in CATEGORIES
    }
    of_stage = higher[list(schedule.stage_rank)]
    in_flight = np.where(of_stage, 0.0, use.in_flight)
    cached = use.peak + use.uncached
    return MemoryUse(
        **now, in_flight=in_flight, uncached=cached + copies - np.maximum(total, use.peak)
    )


def ranks_with_blocks(counts: Array, schedule: Schedule) -> Flags:
    """Which ranks hold any layers, (p,): not one with an embedding or a head alone."""
    return np.asarray(on_ranks(counts, schedule).sum(axis=1) > 0)


def buffer_bytes(
    job: Job,
    table: PlanTable,
    layers: LayerTable,
    schedule: Schedule,
    stages: tuple[Array, Array],
    with_blocks: Flags,
) -> tuple[Array, Array]:
    """(logits, temporary) of each rank's highest moment, (p, B).

    `stages` are the bytes that each stage keeps of a micro-batch, and its micro-batches in flight:
    on the last one the softmaxes of all but the one at work wait beside it.
    """
    temporary = with_blocks[:, None] * layer_moment(job, table, layers)
    kept, in_flight = stages
    for first in filter(schedule.is_first, range(schedule.num_stages)):
        start = schedule.stage_rank[first]
        rows = embedding_moment(job, table) - kept[first]
        temporary[start] = np.maximum(temporary[start], rows)
    scores = logit_values(job, table)
    head, at_loss = head_moment(job, table), scores * job.software.loss_kept
    logits = np.zeros_like(temporary)
    for last in filter(schedule.is_last, range(schedule.num_stages)):
        end = schedule.stage_rank[last]
        higher = head + at_loss >= temporary[end]
        waiting = np.maximum(in_flight[last] - 1.0, 0.0)
        logits[end] = waiting * scores * job.software.loss_saved + np.where(higher, at_loss, 0.0)
        temporary[end] = np.where(higher, head, temporary[end])
    return logits, temporary + lasting_bytes(job, table, with_blocks)


def lasting_bytes(job: Job, table: PlanTable, with_blocks: Flags) -> Array:
    """Temporary buffers that stay: workspaces and placeholders of weight gradients, (p, B)."""
    return with_blocks[:, None] * placeholder_bytes(job, table) + job.software.workspace
