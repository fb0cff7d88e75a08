"""Bytes that workers and servers of a strategy hold, from those of the same worker under DDP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parsim.plan import PlanTable, precision
from parsim.plan.strategies import (
    AsynchronousGossip,
    AsynchronousServer,
    BranchParallel,
    DiLoCo,
    Gossip,
    Layout,
    ParameterServer,
    SingleProcess,
    of_kind,
)
from parsim.sim.data_parallel.families.priced import Priced
from parsim.sim.data_parallel.workers import MASTER_BYTES, Workers
from parsim.sim.memory.buffers import logit_values

Categories = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """Categories of bytes by role of a device, and of each server on a host."""

    devices: Mapping[str, Categories]
    server: float = 0.0


def holdings(workers: Workers, priced: Priced, ddp: Mapping[str, float]) -> Holdings:
    """What a device of each role holds; `ddp` are the categories of a worker under DDP."""
    change = _CHANGES.get(workers.plan.strategy.name)
    if change is None:
        return Holdings(devices={"worker": dict(ddp)})
    return change(workers, priced, dict(ddp))


def _single_process(workers: Workers, priced: Priced, ddp: Categories) -> Holdings:
    """Device 0 has the whole batch's outputs and the optimizer; nobody has buckets."""
    table = PlanTable.of([workers.plan])
    outputs = float(logit_values(workers.job, table)[0]) * workers.job.software.loss_kept
    bare = {**ddp, "communication": 0.0}
    first = {**bare, "logits": ddp["logits"] + (workers.count - 1) * outputs}
    return Holdings(devices={"device 0": first, "other devices": {**bare, "optimizer": 0.0}})


def _servers(workers: Workers, priced: Priced, ddp: Categories) -> Holdings:
    """Optimizer states are the servers': shares of weights, states and, in step, sums.

    Workers that send the largest values only keep the others, in fp32.
    """
    strategy = of_kind(workers.plan.strategy, ParameterServer, AsynchronousServer)
    wires = priced.wires
    if wires is None:
        raise TypeError(f"strategy {strategy.name} is priced without the wires of its servers")
    worker = {**ddp, "optimizer": 0.0}
    if strategy.feeds_back:
        worker["communication"] += MASTER_BYTES * workers.parameters
    weights = precision(workers.plan.precision)
    each = weights.parameter + weights.master + workers.job.optimizer.states * weights.width
    each += MASTER_BYTES if priced.synchronises else 0.0
    server = workers.parameters / len(wires.node) * each
    if strategy.on == "hosts":
        return Holdings(devices={"worker": worker}, server=server)
    both = {**worker, "optimizer": server}
    return Holdings(devices={"worker with a server": both, "worker": worker}, server=server)


def _peers(workers: Workers, priced: Priced, ddp: Categories) -> Holdings:
    """Weights of the neighbours arrive beside one's own; nobody reduces gradients."""
    strategy = workers.plan.strategy
    copies = priced.received / workers.weight_bytes
    if isinstance(strategy, AsynchronousGossip):
        copies = 2.0  # the snapshot that the gradient belongs to, and the peer's weights
    buffers = copies * workers.weight_bytes
    return Holdings(devices={"worker": {**ddp, "communication": buffers}})


def _outer(workers: Workers, priced: Priced, ddp: Categories) -> Holdings:
    """Weights of the last average and their momentum stay beside the inner optimizer's states."""
    outer = 2.0 * MASTER_BYTES * workers.parameters
    return Holdings(devices={"worker": {**ddp, "optimizer": ddp["optimizer"] + outer}})


def _together(workers: Workers, priced: Priced, whole: Categories) -> Holdings:
    """Each device has a part of the model, its states, and what it keeps."""
    if priced.together is None:
        raise TypeError(f"strategy {workers.plan.strategy.name} is priced without its parts")
    return Holdings(devices=priced.together.device_bytes(whole))


_CHANGES: dict[str, Callable[[Workers, Priced, Categories], Holdings]] = {
    SingleProcess.name: _single_process,
    ParameterServer.name: _servers,
    AsynchronousServer.name: _servers,
    Gossip.name: _peers,
    AsynchronousGossip.name: _peers,
    DiLoCo.name: _outer,
    BranchParallel.name: _together,
    Layout.name: _together,
}
"""What a strategy's workers hold other than DDP's; local steps average in DDP's buffers."""
