"""What a plan keeps in the memory of its nodes' hosts, and whether that has room for it.

    bytes of a node = devices of a node x most bytes that a pipeline rank has there

All devices of a node are taken to be of the pipeline rank that moves the most, as they are where
pipelines lie between nodes; else it is an upper bound.

Leaves out: what the hosts hold beside (operating system, data loaders, checkpoints), buffers that
are rounded up to whole pages.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Flags
from parsim.cluster.hardware import System
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.offload import freed_bytes
from parsim.cost.step.step import stage_cut
from parsim.plan import PlanTable
from parsim.schedule import Schedule
from parsim.sim.memory.categories import MemoryUse
from parsim.sim.step.schedule_costs import on_ranks


def host_bytes(
    job: Job, table: PlanTable, layers: LayerTable, memory: MemoryUse, schedule: Schedule
) -> Array:
    """Bytes in the hosts of one node at the peak, (B,)."""
    moved = schedule.in_copies(freed_bytes(job, table, layers, stage_cut(job, table)))
    of_rank = on_ranks(memory.in_flight * moved, schedule).max(axis=0)
    return np.asarray(of_rank * job.system.devices_per_node)


def peak_with_host(
    job: Job, table: PlanTable, layers: LayerTable, memory: MemoryUse, schedule: Schedule
) -> Array:
    """Bytes of each rank at its peak, (p, B); endless where the hosts have no room for the rest."""
    if not (table.offload_layers > 0).any():
        return memory.peak
    room = has_room(job.system, host_bytes(job, table, layers, memory, schedule))
    return np.where(room, memory.peak, np.inf)


def has_room(system: System, used: Array | float) -> Flags:
    """Whether the hosts of a node hold so many bytes; a system that does not say holds any."""
    return np.asarray(np.asarray(used) <= (system.host_memory or np.inf))
