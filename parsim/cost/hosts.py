"""What hosts cost beside launches: the slowest of a group, pauses, copies of samples."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.order_statistics import expected_maximum
from parsim.plan import PlanTable

INPUT_VALUE = 4.0
"""Bytes of a sample's value, which hosts keep in fp32."""


def slowest_host(job: Job, table: PlanTable) -> Array:
    """Time of the slowest of a tensor-parallel group's hosts over that of the mean one, (B,).

    1 + host_spread E[max of tp standard normals]: each layer's collectives wait for the last rank
    to launch its part, and a host that is behind stays behind, because none waits for its device.
    Source: order statistics; host_spread is the stack's (`software.yaml`).
    Leaves out: ranks of other stages and replicas, which wait for each other once a micro-batch
    or once a step; hosts that are slow together.
    """
    return 1.0 + job.software.host_spread * expected_maximum(table.tp)


def between_microbatches(job: Job, table: PlanTable) -> tuple[Array, Array]:
    """Seconds between two passes, half of `microbatch_overhead`: of the device, of the host, (B,).

    A host that runs ahead takes up the next micro-batch while the device computes, as it launches
    kernels; for another one the device waits.

    Source: Megatron-Core, pipeline_parallel/p2p_communication.py (commit f7dfb99795): batched
    sends and receives end in `torch.cuda.synchronize()`, overlapped ones in a stream's wait.
    Leaves out: plans with sends that block under a stack that overlaps them.
    """
    half = np.full(len(table), 0.5 * job.software.between_microbatches)
    copied = 0.5 * input_copies(job, table)
    return (copied, half) if job.software.runs_ahead else (half + copied, np.zeros(len(table)))


def input_copies(job: Job, table: PlanTable) -> Array:
    """Seconds in which a host copies the samples of a micro-batch to all of its devices, (B,).

        devices of a node x samples x values of one x 4 bytes / rate

    Leaves out: pipelines, of which the first stage alone has samples.
    """
    rate = job.software.input_copy_rate
    if not rate:
        return np.zeros(len(table))
    node = job.system.devices_per_node * INPUT_VALUE * job.model.layers[0].inputs
    return np.where(table.pp == 1, table.on_rank(node) / rate, 0.0)
