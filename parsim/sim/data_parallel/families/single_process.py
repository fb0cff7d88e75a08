"""The prices of one process that drives all devices of a node."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.server_rates import host_link
from parsim.cost.step.stages import host_share
from parsim.plan import PlanTable
from parsim.sim.data_parallel.families.priced import Priced, compute_prices
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.memory.buffers import logit_values
from parsim.strategy import STRATEGIES

TOKEN_BYTES = 8.0
"""A token's number as torch keeps it: int64."""


def single_process(workers: Workers) -> Priced:
    """One process and its threads; collectives between device 0 and the others."""
    job, count = workers.job, workers.count
    system = workers.systems[0]
    where = one_group(system, count)

    def seconds(kind: CollectiveKind, size: float) -> Array:
        return np.asarray(collective_time(system, kind, size, where))

    samples = _samples(workers)
    outputs = _outputs(workers)
    others = (count - 1) / count
    layers = workers.evaluation.step.pricing.layers(0)
    threads = count * float(host_share(job, layers)[0]) * workers.forward
    lasting = np.maximum(workers.forward, threads)
    to_host = count * samples / host_link(system)
    out_of_first = (count - 1) * samples / (system.intra.bandwidth * system.intra.efficiency)
    loss = memory_time(job.device, 2.0 * count * outputs)
    prices = {
        **compute_prices(workers),
        "forward": lasting,
        "optimizer": workers.optimizer[:1],
        "scatter": np.atleast_1d(to_host + out_of_first),
        "replicate": seconds("broadcast", workers.weight_bytes),
        "gather": seconds("all_gather", count * outputs),
        "loss": np.atleast_1d(loss),
        "reduce": seconds("reduce", workers.gradient_bytes),
    }
    whole = workers.passes * (count - 1)
    return Priced(
        program=STRATEGIES["data_parallel"].program(count, workers.passes),
        seconds=prices,
        sent=whole * (workers.weight_bytes + samples + outputs),
        received=whole * workers.gradient_bytes + workers.passes * others * count * outputs,
        changes_training=False,
        carried={
            "replicate": workers.weight_bytes,
            "gather": count * outputs,
            "reduce": workers.gradient_bytes,
        },
    )


def _samples(workers: Workers) -> float:
    """Bytes of a pass's input on one device: token ids of 8 bytes, or the first layer's values."""
    model, table = workers.job.model, PlanTable.of([workers.plan])
    if model.lookup is not None:
        return float(table.on_rank(model.lookup.tokens)[0]) * TOKEN_BYTES
    return float(border_bytes(table, model.layers[0].inputs)[0])


def _outputs(workers: Workers) -> float:
    """Bytes of a pass's outputs on one device: its logits."""
    table = PlanTable.of([workers.plan])
    return float(logit_values(workers.job, table)[0]) * table.precision.activation
