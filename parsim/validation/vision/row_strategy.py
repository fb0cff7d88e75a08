"""The strategy that a row of a table of networks names: what a plan has for it, and its options."""

from __future__ import annotations

import re
from collections.abc import Mapping

from parsim.errors import shown
from parsim.plan.strategies import (
    AllReduce,
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    Servers,
    SingleProcess,
    Strategy,
    Where,
)
from parsim.validation.cells import Cells
from parsim.validation.tables import RowSkipped

DATA_PARALLEL: Mapping[str, type[Strategy]] = {
    "data_parallel": AllReduce,
    "single_process_data_parallel": SingleProcess,
    "parameter_server": ParameterServer,
    "async_parameter_server": AsynchronousServer,
    "local_sgd": LocalSGD,
    "diloco": DiLoCo,
    "gossip": Gossip,
    "asynchronous_gossip": AsynchronousGossip,
    "ddp": AllReduce,
    "asynchronous_server": AsynchronousServer,
}
"""What a table calls the strategies of whole replicas, and what a plan has for them.

A table's `data_parallel` is a plan's `ddp`, and one process with a thread for each device has a
name of its own there; the last two are a plan's names of what is above.
"""

OVERLAPPING = ("tensorflow", "mxnet", "byteps")
"""Frameworks that push each gradient as it is made, and whose devices of a node sum first.

MXNet's `dist_device_sync`, `distributed_replicated` of tf_cnn_benchmarks; BytePS, OSDI 2020. On one
node nothing is summed before it goes to the host (`parameter_server` with variables on the CPU).
"""

PIPELINES: Mapping[str, str] = {
    "gpipe": "gpipe",
    "pipedream_flush": "1f1b",
    "pipedream_2bw": "pipedream_2bw",
}
"""What a table calls the pipelines of one model over all devices, and their schedules."""

STRATEGIES = ("single", *DATA_PARALLEL, *PIPELINES, "pipedream")
"""What is predicted from a row."""


def check_strategy(strategy: str) -> None:
    """Refuse what cannot be predicted.

    Raises:
        RowSkipped: naming what can.
    """
    if strategy not in STRATEGIES:
        listed = ", ".join(STRATEGIES)
        raise RowSkipped(f"strategy '{shown(strategy)}' is not predicted; predicted are {listed}")


def replicas_of_stages(row: Mapping[str, str], devices: int) -> tuple[int, ...]:
    """Replicas of pipedream's stages, which share out all devices."""
    if row["strategy"] != "pipedream":
        return ()
    cell = row.get("replicas", "")
    counts = tuple(map(int, re.findall(r"\d{1,6}", cell)))
    if sum(counts) != devices or 0 in counts:
        raise RowSkipped(f"replicas='{shown(cell)}' must be numbers that sum to n_gpus={devices}")
    return counts


def replicated_by(row: Mapping[str, str], cells: Cells) -> Strategy:
    """The plan's strategy of whole replicas, with the options that the row states."""
    kind = DATA_PARALLEL.get(row["strategy"], AllReduce)
    if issubclass(kind, Servers):
        return _with_servers(kind, row, cells)
    if issubclass(kind, LocalSGD | DiLoCo):
        return kind(every=cells.need("sync_every"))
    return kind()


def _with_servers(kind: type[Servers], row: Mapping[str, str], cells: Cells) -> Strategy:
    """A server's strategy: where the row has it, else as the frameworks of the row usually do."""
    on = row.get("servers_on", "") or "hosts"
    if on not in ("hosts", "devices"):
        raise RowSkipped(f"servers_on='{shown(on)}' must be hosts or devices")
    where: Where = "hosts" if on == "hosts" else "devices"
    count = cells.positive("servers")
    if not issubclass(kind, ParameterServer):
        return kind(servers=count, on=where)
    usual = row["framework"].lower().startswith(OVERLAPPING)
    several = where == "hosts" and cells.need("n_gpus") > cells.need("gpus_per_node") > 1
    return kind(
        servers=count,
        on=where,
        node_sums=_flag(row, "node_sums", otherwise=usual and several),
        overlap=_flag(row, "overlap", otherwise=usual),
    )


def _flag(row: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    """Whether a cell says yes; what else is so where it is blank."""
    cell = row.get(name, "")
    if cell not in ("", "yes", "no"):
        raise RowSkipped(f"{name}='{shown(cell)}' must be yes or no")
    return cell == "yes" if cell else otherwise
