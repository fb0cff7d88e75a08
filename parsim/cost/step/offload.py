"""Copies of activations to the host's memory and back, beside the compute of a stage.

    compute  |  F 0   F 1   F 2  ...  |  B 2   B 1   B 0  ...
    offload     |-- 0 --|-- 1 --| ... ... |-- 1 --|-- 0 --|         device to host, host to device

Of each stage its first `offload_layers` layers move what they keep of a micro-batch to the host
behind its forward and get it back before its backward. The copies of one micro-batch are spread
over its whole forward, and over its whole backward, so that with D seconds of copies

    forward = max(F, D)      backward = max(B, D)      D = bytes / rate

and what they take longer than the compute shows. The two directions do not slow one another.

    rate = min(link, memory of a host / devices that share it)

Source: Transformer Engine, `cpu_offload.py`: layers' copies are spread evenly over the windows of
all layers, two layers are buffered; Megatron-Bridge, performance guide, "Activation offloading to
host memory": what limits it is the link and the host's memory. Tests hold it against the tasks of
such a pass, layer by layer.
Leaves out: copies to the host that go on beside the next action, which need the other direction;
the share of the device's memory bandwidth that copies take; other traffic on the link
to the host (interfaces of the network are often behind the same switch); pipelines' first forwards
and last backwards, whose copies have more time than those of the steady state.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.job import Job
from parsim.cost.server_rates import host_memory, host_rate
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_passes import ChunkTimes
from parsim.cost.step.stages import first_layers, over_kinds
from parsim.errors import PlanError
from parsim.model.model import Model
from parsim.plan import PlanTable
from parsim.units import format_rate

BUFFERED = 2
"""Layers whose activations are on the device while they are on their way."""


def offloads(table: PlanTable) -> bool:
    """Whether any of the plans moves activations to the host."""
    return bool((table.offload_layers > 0).any())


def offload_counts(model: Model, table: PlanTable, cut: tuple[int, ...]) -> Array:
    """How many layers of each kind each stage moves, its first ones, (S, K, B)."""
    return first_layers(model, cut, table.offload_layers)


def moved_bytes(job: Job, table: PlanTable, layers: LayerTable, cut: tuple[int, ...]) -> Array:
    """Bytes of one micro-batch that each stage moves to the host, (S, B)."""
    if not offloads(table):
        return np.zeros((len(cut), len(table)))
    return over_kinds(offload_counts(job.model, table, cut), np.stack(layers.moved))


def freed_bytes(job: Job, table: PlanTable, layers: LayerTable, cut: tuple[int, ...]) -> Array:
    """Bytes of one micro-batch that copies to the host take off the device, (S, B).

    None where the device is the host itself.
    """
    return np.asarray(moved_bytes(job, table, layers, cut) * (not job.system.on_cpu))


def buffered_bytes(job: Job, table: PlanTable, layers: LayerTable) -> Array:
    """Bytes of the layers that are on their way to the host or back, on the device, (B,)."""
    if not offloads(table) or job.system.on_cpu:
        return np.zeros(len(table))
    buffers = np.minimum(table.offload_layers, BUFFERED)
    return np.asarray(buffers * np.max(np.stack(layers.moved), axis=0))


def copy_seconds(job: Job, moved: Array) -> Array:
    """Seconds of a copy of so many bytes to a device's host, or back."""
    return np.asarray(moved / host_rate(job.system))


def update_note(system: System) -> str:
    """What a prediction says of an update on the hosts of a system."""
    return (
        f"optimizer_offload: updated at {format_rate(host_memory(system))} of a host's memory, "
        f"copied at {format_rate(host_rate(system))} each way, both by the catalog; no measured "
        f"run with it is in a fit"
    )


def offload_note(system: System) -> str:
    """What a prediction says of the copies to the host of a system."""
    if system.on_cpu:
        return f"offload: the memory of {system.id} is its host's, so that copies free nothing"
    return (
        f"offload: {format_rate(host_rate(system))} each way between a device of {system.id} and "
        f"its host, by the catalog's links and memory; no measured run with copies is in a fit"
    )


def with_copies(
    job: Job, forward: ChunkTimes, backward: ChunkTimes, moved: Array
) -> tuple[ChunkTimes, ChunkTimes]:
    """Passes of stages that move so many bytes of a micro-batch, forward and backward.

    A processor copies in line with what it computes, and finds its copies where they are.
    """
    copies = copy_seconds(job, moved)
    if job.system.on_cpu:
        return beside_copies(forward, forward.time + copies), backward
    return beside_copies(forward, copies), beside_copies(backward, copies)


def beside_copies(chunk: ChunkTimes, copies: Array) -> ChunkTimes:
    """Passes that last at least as long as their copies; what they last longer is exposed."""
    longer = np.maximum(copies - chunk.time, 0.0)
    return replace(chunk, time=chunk.time + longer, exposed=chunk.exposed + longer)


def no_host(system: System, asked: str = "offload_layers") -> str | None:
    """Why nothing can be moved to the hosts of a system, as `asked` says; or None."""
    try:
        host_rate(system, asked)
    except PlanError as error:
        return str(error)
    return None
