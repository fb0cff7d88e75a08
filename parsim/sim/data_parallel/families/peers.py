"""The prices of workers that average their weights with neighbours or drawn peers."""

from __future__ import annotations

from parsim.plan.strategies import AsynchronousGossip, Gossip, of_kind
from parsim.sim.data_parallel.averages import neighbour_exchange, pair_exchange
from parsim.sim.data_parallel.families.priced import Priced, compute_prices
from parsim.sim.data_parallel.workers import Workers
from parsim.strategy import STRATEGIES


def gossip(workers: Workers) -> Priced:
    """Neighbours of a fixed graph, in every step."""
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


def asynchronous_gossip(workers: Workers) -> Priced:
    """A drawn peer, each at its own pace."""
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
