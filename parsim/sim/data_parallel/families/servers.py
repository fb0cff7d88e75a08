"""The prices of workers with parameter servers, in step and not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.arrays import Array
from parsim.plan.strategies import AsynchronousServer, ParameterServer, Servers, of_kind
from parsim.sim.data_parallel.families.averages import node_collective
from parsim.sim.data_parallel.families.priced import Priced, compute_prices
from parsim.sim.data_parallel.families.server_work import slowed_by_servers
from parsim.sim.data_parallel.server_wires import ServerWires, server_wires
from parsim.sim.data_parallel.workers import Workers
from parsim.strategy import STRATEGIES, StepProgram

PIECES = 8
"""Parts of a gradient that are pushed one by one; more hide a little more of the last one."""


def parameter_server(workers: Workers) -> Priced:
    """Servers that sum the gradients of a step."""
    strategy = of_kind(workers.plan.strategy, ParameterServer)
    pieces = PIECES if strategy.overlap else 1
    wires = server_wires(workers, strategy, sums=True, pieces=pieces)
    program = STRATEGIES[strategy.name].program(
        workers.count,
        len(wires.node),
        workers.passes,
        wires.there,
        wires.back,
        rounds=200 if strategy.backup_workers else 1,
        backup_workers=strategy.backup_workers,
        compresses=strategy.compression < 1.0,
        nodes=workers.nodes if strategy.node_sums else (),
        pieces=pieces,
        lumped=bool((workers.stands_for > 1.0).any()),
    )
    changes = bool(strategy.backup_workers) or strategy.compression < 1.0
    served = _served(workers, strategy, wires, program, clips=False)
    if strategy.node_sums:
        served = _summed_in_nodes(workers, served)
    if strategy.overlap:
        served = _in_pieces(workers, served)
    return replace(served, changes_training=changes)


def _in_pieces(workers: Workers, served: Priced) -> Priced:
    """Share out what `PIECES` of a gradient have in common, and slow compute beside their push."""
    seconds = dict(served.seconds)
    slowed = workers.slowed_beside(PIECES * seconds["push_latency"])
    seconds |= compute_prices(workers, slowed)
    last = seconds["backward"] / workers.stands_for
    seconds["backward_before"] = seconds["backward"] - last
    seconds["backward_piece"] = last / PIECES
    carried = {**served.carried, "push_latency": served.carried["push_latency"] / PIECES}
    if "node_sum" in seconds:
        size = workers.gradient_bytes / PIECES
        each = node_collective(workers, "reduce_scatter", size)
        seconds["node_sum"], carried["node_sum"] = np.array([each]), size
    return replace(served, seconds=seconds, carried=carried)


def _summed_in_nodes(workers: Workers, served: Priced) -> Priced:
    """Add the collectives inside each node, whose workers send and fetch a part each."""
    inside = {
        "node_sum": node_collective(workers, "reduce_scatter", workers.gradient_bytes),
        "node_gather": node_collective(workers, "all_gather", workers.weight_bytes),
    }
    part = len(workers.nodes) / workers.count
    carried = {name: size * part for name, size in served.carried.items()}
    return replace(
        served,
        seconds={**served.seconds, **{name: np.array([each]) for name, each in inside.items()}},
        sent=served.sent * part,
        received=served.received * part,
        carried={
            **carried,
            "node_sum": workers.gradient_bytes,
            "node_gather": workers.weight_bytes,
        },
    )


def asynchronous_server(workers: Workers) -> Priced:
    """Servers that apply each gradient as it comes."""
    strategy = of_kind(workers.plan.strategy, AsynchronousServer)
    wires = server_wires(workers, strategy, sums=False)
    program = STRATEGIES[strategy.name].program(
        workers.count,
        workers.passes,
        wires.there,
        wires.back,
        wires.applied,
        rounds=strategy.updates,
        staleness=strategy.staleness,
        compresses=strategy.compression < 1.0,
    )
    slowed = slowed_by_servers(workers, wires)
    return replace(
        _served(workers, strategy, wires, program, slowed=slowed, clips=True), synchronises=False
    )


def _served(
    workers: Workers,
    strategy: Servers,
    wires: ServerWires,
    program: StepProgram,
    *,
    slowed: Array | float = 1.0,
    clips: bool,
) -> Priced:
    """A program with its prices, each worker's gradient going to the servers and weights back.

    Workers compute `slowed` times as long, and clip where a server sees one gradient at a time;
    else servers clip the mean.
    """
    return Priced(
        program=program,
        seconds={**compute_prices(workers, slowed, clips=clips), **wires.seconds},
        sent=workers.gradient_bytes * strategy.compression,
        received=workers.weight_bytes,
        wires=wires,
        carried=_pushed(workers, strategy),
    )


def _pushed(workers: Workers, strategy: Servers) -> dict[str, float]:
    """Bytes of a worker's gradient to all servers together, and of the weights back."""
    return {
        "push_latency": workers.gradient_bytes * strategy.compression,
        "pull_latency": workers.weight_bytes,
    }
