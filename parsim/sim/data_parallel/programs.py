"""The program of a plan's strategy with its prices: one function a strategy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parsim.cost.kernel.kernels import memory_time
from parsim.plan.strategies import (
    AsynchronousGossip,
    AsynchronousServer,
    BranchParallel,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    Servers,
    SingleProcess,
    of_kind,
)
from parsim.sim.branches.priced import Branched
from parsim.sim.data_parallel.averages import neighbour_exchange, node_average, pair_exchange
from parsim.sim.data_parallel.priced import Priced, compute_prices
from parsim.sim.data_parallel.server_wires import server_wires
from parsim.sim.data_parallel.single_process import single_process
from parsim.sim.data_parallel.workers import Workers
from parsim.strategy import STRATEGIES

MASTER_BYTES = 4.0
"""Bytes of a weight, a change or a momentum of an outer optimizer: fp32."""
OUTER_TRAFFIC = 6 * MASTER_BYTES
"""Bytes a parameter that an outer step moves: weights, change and momentum read, momentum, outer
weights and weights written."""


def _parameter_server(workers: Workers) -> Priced:
    strategy = of_kind(workers.plan.strategy, ParameterServer)
    wires = server_wires(workers, strategy, sums=True)
    program = STRATEGIES[strategy.name].program(
        workers.count,
        len(wires.node),
        workers.passes,
        wires.there,
        wires.back,
        rounds=200 if strategy.backup_workers else 1,
        backup_workers=strategy.backup_workers,
        compresses=strategy.compression < 1.0,
    )
    return Priced(
        program=program,
        seconds={**compute_prices(workers), **wires.seconds},
        sent=workers.gradient_bytes * strategy.compression,
        received=workers.weight_bytes,
        changes_training=bool(strategy.backup_workers) or strategy.compression < 1.0,
        wires=wires,
        carried=_pushed(workers, strategy),
    )


def _asynchronous_server(workers: Workers) -> Priced:
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
    return Priced(
        program=program,
        seconds={**compute_prices(workers), **wires.seconds},
        sent=workers.gradient_bytes * strategy.compression,
        received=workers.weight_bytes,
        synchronises=False,
        wires=wires,
        carried=_pushed(workers, strategy),
    )


def _pushed(workers: Workers, strategy: Servers) -> dict[str, float]:
    """Bytes of a worker's gradient to all servers together, and of the weights back."""
    return {
        "push_latency": workers.gradient_bytes * strategy.compression,
        "pull_latency": workers.weight_bytes,
    }


def _gossip(workers: Workers) -> Priced:
    strategy = of_kind(workers.plan.strategy, Gossip)
    program = STRATEGIES[strategy.name].program(
        workers.count, workers.passes, strategy.topology, rounds=4
    )
    exchange = neighbour_exchange(workers, strategy.topology)
    prices = {**compute_prices(workers, workers.slowed_beside(exchange)), "exchange": exchange}
    gate = program.task("exchange").gate
    peers = len(gate.of[0]) if gate else 0
    traffic = peers * workers.weight_bytes
    return Priced(
        program=program,
        seconds=prices,
        sent=traffic,
        received=traffic,
        carried={"exchange": workers.weight_bytes},
    )


def _asynchronous_gossip(workers: Workers) -> Priced:
    strategy = of_kind(workers.plan.strategy, AsynchronousGossip)
    program = STRATEGIES[strategy.name].program(
        workers.count, workers.passes, rounds=strategy.updates
    )
    average = pair_exchange(workers)
    answered = 1.0  # as many as a worker asks for, in the mean
    slowed = workers.slowed_beside((1.0 + answered) * average)
    prices = {**compute_prices(workers, slowed), "average": average}
    traffic = 2.0 * workers.weight_bytes
    return Priced(
        program=program,
        seconds=prices,
        sent=traffic,
        received=traffic,
        synchronises=False,
        carried={"average": workers.weight_bytes},
    )


def _local_steps(workers: Workers) -> Priced:
    strategy = of_kind(workers.plan.strategy, LocalSGD, DiLoCo)
    outer = isinstance(strategy, DiLoCo)
    local = strategy if isinstance(strategy, LocalSGD) else None
    node_every = (local.node_every or 0) if local else 0
    program = STRATEGIES[strategy.name].program(
        workers.nodes,
        workers.passes,
        every=strategy.every,
        node_every=node_every,
        after=local.after if local else 0,
        rounds=(local.steps or 0) if local else 0,
        outer=outer,
    )
    moved = OUTER_TRAFFIC * workers.parameters
    exposed = workers.evaluation.barrier - workers.evaluation.pipeline_time
    prices = {
        **compute_prices(workers),
        "reduce": np.array([exposed]),
        "average": np.array([workers.all_reduce]),
        "node_average": np.array([node_average(workers) if node_every else 0.0]),
        "outer": np.atleast_1d(memory_time(workers.job.cluster.devices[0], moved)),
    }
    often = sum(number in program.task("average").when for number in range(program.rounds)) + (
        local.after if local else 0
    )
    share = often / program.rounds
    traffic = share * 2.0 * workers.gradient_bytes * (workers.count - 1) / workers.count
    size = workers.gradient_bytes
    exposed_size = size * min(exposed / workers.all_reduce, 1.0) if exposed > 0.0 else size
    return Priced(
        program=program,
        seconds=prices,
        sent=traffic,
        received=traffic,
        carried={"average": size, "node_average": size, "reduce": exposed_size},
    )


def _branch_parallel(workers: Workers) -> Priced:
    strategy = of_kind(workers.plan.strategy, BranchParallel)
    branched = Branched(workers.evaluation, workers.plan, workers.node)
    count, passes = workers.plan.num_microbatches, workers.passes
    copies, share = branched.replicas, count / strategy.devices
    sent = branched.sent_bytes * (count / passes)
    traffic = share * (float(branched.sent_bytes.sum()) + branched.returned_bytes)
    traffic += 2.0 * float(branched.reduced.mean()) * (copies - 1) / copies
    return Priced(
        program=branched.program(copies, passes),
        seconds=branched.seconds(passes),
        sent=traffic,
        received=traffic,
        changes_training=False,
        carried={"message": np.repeat(sent, copies), "reduce": branched.reduced},
        branched=branched,
    )


PROGRAMS: dict[str, Callable[[Workers], Priced]] = {
    SingleProcess.name: single_process,
    ParameterServer.name: _parameter_server,
    AsynchronousServer.name: _asynchronous_server,
    Gossip.name: _gossip,
    AsynchronousGossip.name: _asynchronous_gossip,
    LocalSGD.name: _local_steps,
    DiLoCo.name: _local_steps,
    BranchParallel.name: _branch_parallel,
}
"""Who writes and prices the program of a strategy, by its name."""
