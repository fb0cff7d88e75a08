"""Activations at their peak: on a rank by what keeps them, and in the memory of nodes' hosts."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.hardware import System
from parsim.cost.job import Job
from parsim.cost.layer.composed import composed_kept
from parsim.cost.layer.kept.activations import kept_parts, kept_policy, offloaded_parts
from parsim.cost.layer.kept.operator_tensors import KINDS, border_bytes
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import freed_bytes, offload_counts, offloads
from parsim.cost.step.stages import layer_counts, over_kinds
from parsim.cost.step.step import repeated_layers, stage_cut
from parsim.plan import PlanTable, Recompute
from parsim.schedule import Schedule
from parsim.sim.memory.categories import MemoryUse
from parsim.sim.memory.eager_kept import composed_bytes
from parsim.sim.step.kept_bytes import entering_bytes
from parsim.sim.step.schedule_costs import on_ranks


def activation_parts(
    job: Job, table: PlanTable, layers: LayerTable, memory: MemoryUse, schedule: Schedule, rank: int
) -> dict[str, float]:
    """Bytes by kind on a rank of the table's first plan; they sum to its activations.

    The kinds of `kept_parts`, the embedding's and the head's, in eager PyTorch what composed
    operators keep twice, and what enters stages that are recomputed as a whole.
    """
    stages = list(schedule.stages_on(rank))
    in_flight = memory.in_flight[stages, 0]
    parts = {
        name: float(in_flight @ schedule.in_copies(rows)[stages, 0])
        for name, rows in _kept(job, table, layers).items()
    }
    if schedule.limit is not None:
        other = schedule.pp - 1 - rank
        for name, rows in _kept(job, table, layers).items():
            parts[name] += schedule.guests[rank] * float(rows[other, 0])
    return {name: size for name, size in parts.items() if size != 0.0}


def _kept(job: Job, table: PlanTable, layers: LayerTable) -> dict[str, Array]:
    """Bytes of one micro-batch on each stage by kind, (S, B) each."""
    model, software = job.model, job.software
    counts = layer_counts(model, stage_cut(job, table))
    policy = kept_policy(software)
    kinds = [kept_parts(layer, table, policy) for layer in model.kinds]
    kept = {name: counts @ np.stack([kind[name] for kind in kinds]) for name in KINDS}
    zero = np.zeros((len(counts), len(table)))
    kept |= {"embedding": zero.copy(), "head": zero.copy(), "composed": zero}
    kept["embedding"][0] = layers.before_kept
    kept["head"][-1] = layers.behind_kept
    if software.eager:
        kept["composed"] = composed_bytes(job, table, counts)
    left = _on_device(job, table, _with_inputs_alone(job, table, kept))
    return _of_whole_stages(job, table, left)


def _of_whole_stages(job: Job, table: PlanTable, kept: dict[str, Array]) -> dict[str, Array]:
    """What is kept where a stack checkpoints whole stages: what enters them, of plans that do."""
    if not job.software.checkpoints_stages:
        return kept
    full = table.recompute == Recompute.FULL
    left = {name: np.where(full, 0.0, rows) for name, rows in kept.items()}
    left["stage_inputs"] = np.where(full, entering_bytes(job, table), 0.0)
    return left


def _with_inputs_alone(job: Job, table: PlanTable, kept: dict[str, Array]) -> dict[str, Array]:
    """What is kept where some layers, which are recomputed as a whole, keep their input alone."""
    again = repeated_layers(job, table)
    if again is None:
        return kept
    model, policy = job.model, kept_policy(job.software)
    kinds = [kept_parts(layer, table, policy) for layer in model.kinds]
    left = dict(kept)
    for name in KINDS:
        left[name] = kept[name] - over_kinds(again, np.stack([kind[name] for kind in kinds]))
    entering = np.stack([border_bytes(table, layer.inputs) for layer in model.kinds])
    left["layer_inputs"] = left["layer_inputs"] + over_kinds(again, entering)
    if job.software.eager:
        composed = [composed_kept(layer, table, job.software) for layer in model.kinds]
        left["composed"] = kept["composed"] - over_kinds(again, np.stack(composed))
    return left


def _on_device(job: Job, table: PlanTable, kept: dict[str, Array]) -> dict[str, Array]:
    """What is left on the device of parts of which some are moved to the host."""
    if not offloads(table) or job.system.on_cpu:
        return kept
    model, policy = job.model, kept_policy(job.software)
    counts = offload_counts(model, table, stage_cut(job, table))
    moved = [offloaded_parts(layer, table, policy) for layer in model.kinds]
    zero = np.zeros(len(table))
    left = dict(kept)
    for name in KINDS:
        of_kinds = np.stack([parts.get(name, zero) for parts in moved])
        left[name] = kept[name] - over_kinds(counts, of_kinds)
    if job.software.eager and not table.common.offload_modules:
        composed = [composed_kept(layer, table, job.software) for layer in model.kinds]
        left["composed"] = kept["composed"] - over_kinds(counts, np.stack(composed))
    return left


def host_bytes(
    job: Job, table: PlanTable, layers: LayerTable, memory: MemoryUse, schedule: Schedule
) -> Array:
    """Bytes in the hosts of one node at the peak, (B,).

        bytes of a node = devices of a node x most bytes that a pipeline rank has there

    Activations, and optimizer states of as many of these devices as the plan uses.

    All devices of a node are taken to be of the pipeline rank that moves the most, as they are
    where pipelines lie between nodes; else it is an upper bound.

    Leaves out: what the hosts hold beside (operating system, data loaders, checkpoints), buffers
    that are rounded up to whole pages.
    """
    moved = schedule.in_copies(freed_bytes(job, table, layers, stage_cut(job, table)))
    of_rank = on_ranks(memory.in_flight * moved, schedule).max(axis=0)
    states = 0.0 if memory.on_host is None else memory.on_host.max(axis=0)
    ranks = np.minimum(table.world_size, job.system.devices_per_node)
    return np.asarray(of_rank * job.system.devices_per_node + states * ranks)


def peak_with_host(
    job: Job, table: PlanTable, layers: LayerTable, memory: MemoryUse, schedule: Schedule
) -> Array:
    """Bytes of each rank at its peak, (p, B); endless where the hosts have no room for the rest."""
    if not (table.offload_layers > 0).any() and not table.common.optimizer_offload:
        return memory.peak
    room = has_room(job.system, host_bytes(job, table, layers, memory, schedule))
    return np.where(room, memory.peak, np.inf)


def has_room(system: System, used: Array | float) -> Flags:
    """Whether the hosts of a node hold so many bytes; a system that does not say holds any."""
    return np.asarray(np.asarray(used) <= (system.host_memory or np.inf))
