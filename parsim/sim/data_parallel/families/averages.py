"""The prices of workers that average weights: with neighbours, drawn peers, or now and then."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Array
from parsim.cost.collective.collectives import collective_time, p2p_time
from parsim.cost.collective.group_bandwidth import one_group
from parsim.cost.collective.kinds import CollectiveKind
from parsim.cost.collective.mesh_messages import joint_share, mean_share
from parsim.cost.server_rates import (
    device_interface,
    leaf_group,
    near_seconds,
    node_interfaces,
    up_links,
)
from parsim.plan.strategies import AsynchronousGossip, DiLoCo, Gossip, LocalSGD, of_kind
from parsim.sim.data_parallel.families.priced import Priced, compute_prices
from parsim.sim.data_parallel.workers import DIVIDED, MASTER_BYTES, Workers
from parsim.strategy import STRATEGIES, StepProgram
from parsim.strategy.gossip import exchanges, neighbours

SUMMED, COPIED = 3 * MASTER_BYTES, 2 * MASTER_BYTES
"""Bytes a parameter of a pass that adds another's weights, and of one that copies."""
OUTER_TRAFFIC = 8 * MASTER_BYTES + COPIED
"""Bytes a parameter that an outer step moves: the change (outer weights and mean read, change
written), the step (weights, change and momentum read, weights and momentum written), the weights
that workers go on from."""


def node_collective(workers: Workers, kind: CollectiveKind, size: float) -> float:
    """Seconds of a collective of so many bytes among a node's workers, of the slowest node."""
    seconds, systems = [], workers.systems
    for node in workers.nodes:
        system = systems[int(workers.node[node[0]])]
        where = one_group(system, len(node))
        seconds.append(float(collective_time(system, kind, size, where, queued=True)[0]))
    return max(seconds)


def neighbour_exchange(workers: Workers, topology: str, number: int) -> Array:
    """Seconds in which each worker sends its weights to all its neighbours of a step, (n,).

    Weights for neighbours of its node go over the links inside, the others over its interfaces,
    which the workers of a node share, and those for another leaf group over up-links, which the
    workers of a leaf group share, at once; (P out and P in for each neighbour, full duplex).
    """
    count, seconds = workers.count, np.zeros(workers.count)
    others = [neighbours(rank, count, topology, number) for rank in range(count)]
    far = np.array(
        [sum(workers.node[o] != workers.node[r] for o in others[r]) for r in range(count)]
    )
    leaf = leaf_group(workers.systems[0], workers.node)
    beyond = np.array([sum(leaf[o] != leaf[r] for o in others[r]) for r in range(count)])
    for rank in range(count):
        system = workers.systems[int(workers.node[rank])]
        near = (len(others[rank]) - far[rank]) * workers.weight_bytes
        share = joint_share(system, rank, [o for o in others[rank] if o != rank])
        inside = near_seconds(system, near, near, share)
        node = far[workers.node == workers.node[rank]].sum()
        across = max(
            far[rank] * workers.weight_bytes / device_interface(system),
            node * workers.weight_bytes / node_interfaces(system),
            beyond[leaf == leaf[rank]].sum() * workers.weight_bytes / up_links(system),
        )
        latency = float(p2p_time(system, 1.0, crosses=bool(far[rank]), sharing=1.0))
        seconds[rank] = latency + max(inside, across)
    return seconds


def pair_exchange(workers: Workers) -> Array:
    """Seconds of an average with a drawn peer, (n,): P out and P in at once.

    With several nodes a peer is mostly on another one, and a node's workers share its interfaces,
    a leaf group's the up-links to the share of peers that are beyond.
    """
    several = len(workers.systems) > 1
    seconds, leaf = np.zeros(workers.count), leaf_group(workers.systems[0], workers.node)
    for rank, node in enumerate(workers.node.tolist()):
        system = workers.systems[node]
        share = mean_share(system, rank, np.flatnonzero(workers.node == node).tolist())
        lasted = near_seconds(system, workers.weight_bytes, workers.weight_bytes, share)
        if several:
            shared = node_interfaces(system) / float((workers.node == node).sum())
            beside = leaf == leaf[rank]
            beyond = beside.sum() * (~beside).sum() / max(workers.count - 1, 1)
            narrow = beyond * workers.weight_bytes / up_links(system)
            lasted = max(lasted, workers.weight_bytes / shared, narrow)
        latency = float(p2p_time(system, 1.0, crosses=several, sharing=1.0))
        seconds[rank] = latency + lasted
    return seconds


def gossip(workers: Workers) -> Priced:
    """Neighbours of a graph, in every step; whole cycles of steps whose peers differ.

    Compute is slowed as beside the mean exchange of a cycle.
    """
    strategy = of_kind(workers.plan.strategy, Gossip)
    names = exchanges(workers.count, strategy.topology)
    program = STRATEGIES[strategy.name].program(
        workers.count, workers.passes, strategy.topology, rounds=-(-4 // len(names)) * len(names)
    )
    each = {
        name: neighbour_exchange(workers, strategy.topology, number)
        for number, name in enumerate(names)
    }
    slowed = np.mean([workers.slowed_beside(seconds) for seconds in each.values()], axis=0)
    prices = {**compute_prices(workers, slowed), **each}
    peers = len(neighbours(0, workers.count, strategy.topology, 0))
    mixed = peers * SUMMED + DIVIDED
    prices["optimizer"] = prices["optimizer"] + workers.passes_over(workers.parameters, mixed)
    traffic = peers * workers.weight_bytes
    return Priced(
        program=program,
        seconds=prices,
        sent=traffic,
        received=traffic,
        carried=dict.fromkeys(names, workers.weight_bytes),
    )


def asynchronous_gossip(workers: Workers) -> Priced:
    """A drawn peer, each at its own pace."""
    strategy = of_kind(workers.plan.strategy, AsynchronousGossip)
    program = STRATEGIES[strategy.name].program(
        workers.count, workers.passes, rounds=strategy.updates
    )
    weights = workers.parameters
    average = pair_exchange(workers) + workers.passes_over(weights, SUMMED + DIVIDED)
    answered = 1.0  # as many as a worker asks for, in the mean
    slowed = workers.slowed_beside((1.0 + answered) * average)
    prices = {**compute_prices(workers, slowed), "average": average}
    prices["optimizer"] = prices["optimizer"] + workers.passes_over(weights, COPIED)
    traffic = 2.0 * workers.weight_bytes
    return Priced(
        program=program,
        seconds=prices,
        sent=traffic,
        received=traffic,
        synchronises=False,
        carried={"average": workers.weight_bytes},
    )


def averaged_bytes(program: StepProgram, size: float, workers: int) -> float:
    """Bytes that a worker sends a step, mean over workers, for averages of so many bytes.

    2 P (w - 1) / w for each all-reduce among w, of all workers or of a node's:

        2 P (g - 1) / (g H1) + 2 P (n - 1) / (n H2),  n workers, g a node, every H1-th and H2-th

    Source: Patarasuk and Yuan, JPDC 69 (2009): what a ring of w sends, the least that there is.
    Leaves out: that an average of all may be one of nodes alone behind theirs.
    """
    sent = 0.0
    for task in program.tasks:
        if task.routes == ("all_reduce",):
            times = sum(number in task.when for number in range(program.rounds))
            sent += times * 2.0 * size * (len(task.ranks) - 1)
    return sent / (workers * program.rounds)


def local_steps(workers: Workers) -> Priced:
    """Averages of weights every so-many-th step, or steps of an outer optimizer."""
    strategy = of_kind(workers.plan.strategy, LocalSGD, DiLoCo)
    local = strategy if isinstance(strategy, LocalSGD) else None
    node_every = (local.node_every or 0) if local else 0
    program = STRATEGIES[strategy.name].program(
        workers.nodes,
        workers.passes,
        every=strategy.every,
        node_every=node_every,
        after=local.after if local else 0,
        rounds=(local.steps or 0) if local else 0,
        outer=isinstance(strategy, DiLoCo),
    )
    size, exposed = workers.gradient_bytes, _exposed_reduction(workers)
    traffic = averaged_bytes(program, size, workers.count)
    exposed_size = size * min(exposed / workers.all_reduce, 1.0) if exposed > 0.0 else size
    return Priced(
        program=program,
        seconds=_average_prices(workers, exposed, in_nodes=node_every > 0),
        sent=traffic,
        received=traffic,
        carried={"average": size, "node_average": size, "reduce": exposed_size},
    )


def _exposed_reduction(workers: Workers) -> float:
    """Seconds of a step's gradient reduction that its passes do not hide."""
    return workers.evaluation.barrier - workers.evaluation.pipeline_time


def _average_prices(workers: Workers, exposed: float, *, in_nodes: bool) -> dict[str, Array]:
    """Seconds of each task's price of workers that take local steps."""
    divided = workers.passes_over(workers.parameters, DIVIDED).max()
    node = node_collective(workers, "all_reduce", workers.gradient_bytes)
    return {
        **compute_prices(workers),
        "reduce": np.array([exposed]),
        "average": np.array([workers.all_reduce + divided]),
        "node_average": np.array([node + divided if in_nodes else 0.0]),
        "outer": workers.passes_over(workers.parameters, OUTER_TRAFFIC),
    }
