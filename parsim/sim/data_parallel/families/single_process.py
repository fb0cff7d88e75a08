"""Single-process DataParallel priced: what the process hands its devices and takes from them."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import collective_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.kernel.kernels import memory_time
from parsim.cost.layer.kept.operator_tensors import border_bytes
from parsim.cost.server_rates import host_link
from parsim.cost.step.stage_passes import host_share
from parsim.plan import PlanTable
from parsim.sim.data_parallel.families.priced import Priced, compute_prices
from parsim.sim.data_parallel.workers import Workers
from parsim.sim.memory.buffers import logit_values
from parsim.strategy import STRATEGIES

TOKEN_BYTES = 8.0
"""A token's number as torch keeps it: int64."""
COPIED, ADDED = 2.0, 3.0
"""How often a byte of a copy passes the memory, and one of a sum of two."""


def single_process(workers: Workers) -> Priced:
    """One process and its threads; collectives between device 0 and the others.

    Where the devices are cores of a processor, its thread copies in their memory instead.
    """
    count, one_memory = workers.count, workers.systems[0].on_cpu
    samples, outputs = _samples(workers), _outputs(workers)
    microbatches, repeats = workers.plan.num_microbatches, float(workers.stands_for[0])
    prices = {
        **compute_prices(workers),
        "forward": np.maximum(workers.forward, _launched(workers)),
        "optimizer": workers.optimizer_alone[:1],  # device 0 alone updates
        **_exchanges(workers, one_memory=one_memory),
    }
    whole, others = microbatches * (count - 1), (count - 1) / count
    return Priced(
        program=STRATEGIES["data_parallel"].program(count, workers.passes, one_memory=one_memory),
        seconds=prices,
        sent=whole * (workers.weight_bytes + samples + outputs),
        received=whole * workers.gradient_bytes + microbatches * others * count * outputs,
        changes_training=False,
        carried={
            "replicate": repeats * workers.weight_bytes,
            "gather": repeats * count * outputs,
            "reduce": repeats * workers.gradient_bytes,
        },
    )


def _exchanges(workers: Workers, *, one_memory: bool) -> dict[str, Array]:
    """Seconds of what goes between devices in a simulated pass, and of the loss on device 0.

    Every micro-batch hands out and takes in again, so that a pass that stands for several has them
    as many times.
    """
    exchanges = _in_memory(workers) if one_memory else _on_links(workers)
    loss = memory_time(workers.job.device, COPIED * workers.count * _outputs(workers))
    alone = {**exchanges, "loss": np.atleast_1d(loss)}
    return {name: workers.stands_for[:1] * seconds for name, seconds in alone.items()}


def _launched(workers: Workers) -> Array:
    """Seconds in which one process launches the forwards of all devices."""
    layers = workers.evaluation.step.pricing.layers(0)
    share = float(host_share(workers.job, layers)[0])
    return np.asarray(workers.count * share * workers.forward)


def _on_links(workers: Workers) -> dict[str, Array]:
    """Seconds of exchanges between devices with memories of their own."""
    system, count = workers.systems[0], workers.count
    where, samples = one_group(system, count), _samples(workers)

    def seconds(kind: CollectiveKind, size: float) -> Array:
        return np.asarray(collective_time(system, kind, size, where))

    to_host = count * samples / host_link(system)
    out_of_first = (count - 1) * samples / system.intra.rate
    return {
        "scatter": np.atleast_1d(to_host + out_of_first),
        "replicate": seconds("broadcast", workers.weight_bytes),
        "gather": seconds("all_gather", count * _outputs(workers)),
        "reduce": seconds("reduce", workers.gradient_bytes),
    }


def _in_memory(workers: Workers) -> dict[str, Array]:
    """Seconds of the same, one copy or sum after another by one core of a processor."""
    count, others = workers.count, workers.count - 1
    moved = {
        "scatter": COPIED * count * _samples(workers),
        "replicate": COPIED * others * workers.weight_bytes,
        "gather": COPIED * count * _outputs(workers),
        "reduce": ADDED * others * workers.gradient_bytes,
    }
    device = workers.job.device
    return {name: np.atleast_1d(memory_time(device, size)) for name, size in moved.items()}


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
