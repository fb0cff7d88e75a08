"""The optimizer's step on the host: gradients go there, 16-bit parameters come back.

    backwards  | B 0 | B 1 | ... | B m-1 |
    to host      |-- gradients' shards --|-- rest --|
    host                                            |-- update --|
    to device                                                    |-- parameters --|

    update = bytes of a parameter x shard / (memory of a host / ranks of a node)
    copy   = bytes / rate of the link

The host reads and writes what a device's update does, and writes the 16-bit parameter beside. With
gradients shared out (ZeRO-2, -3) those of each micro-batch go to the host beside its backward, else
those of the step beside the last one; what is longer than the backward shows.

Source: Ren et al. 2021, ZeRO-Offload (arXiv:2101.06840), section 4: fp32 states and gradients on
the host, 16-bit gradients over the link as they are reduced, every rank updates its shard, and its
one-step delayed update is off by default. Rates are the catalog's links and memory (`host_link`,
`STREAM_SHARE` of the memory's channels), not fitted to measured steps.
Leaves out: sums of several micro-batches' gradients on the host, its instructions where memory does
not limit it, copies of one part of the shard beside the update of another, unpinned memory.
"""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array, Ints
from parsim.cost.data.buckets import reduced_bytes
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.server_rates import host_memory, host_rate

FIELD = "optimizer_offload"


def host_update_seconds(data: DataParallel, share: Array) -> Array:
    """Seconds in which hosts update the share of parameters of each rank, (p, B)."""
    job, table = data.job, data.table
    each = job.optimizer.moved * table.precision.width + table.precision.parameter
    at_once = node_ranks(job, table.world_size)
    return np.asarray(each * share * at_once / host_memory(job.system))


def returned_seconds(data: DataParallel, share: Array) -> Array:
    """Seconds in which updated parameters are copied to the device, (p, B)."""
    return np.asarray(data.table.precision.parameter * share / host_rate(data.job.system, FIELD))


def late_gradients(data: DataParallel, share: Array, backward: Array | float) -> Array:
    """Seconds by which copies of gradients to the host are longer than backwards, (p, B).

    `backward` are seconds of a rank's backwards of one micro-batch.
    """
    table = data.table
    copies = reduced_bytes(table) * share / host_rate(data.job.system, FIELD)
    beside = backward if table.common.overlap_grad_reduce else 0.0
    times = np.where(table.zero_stage >= 2, table.num_microbatches, 1)
    return np.asarray(times * np.maximum(copies - beside, 0.0))


def node_ranks(job: Job, world: Ints) -> Ints:
    """Ranks that share the memory of a node's hosts, (B,)."""
    return np.minimum(world, job.system.devices_per_node)
