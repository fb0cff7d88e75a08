"""What a message between workers and servers passes, and how long each part serves it.

    worker 0 ── its link ──┐
    worker 1 ── its link ──┴ node 0 out ──  ... ── node 3 in ── server 3 memory
                                        and back by node 3 out, node 0 in

Gradients and weights are shared out to the servers evenly, and their shards travel at once. What
several workers pass is a queue: a node's interfaces, up-links that a leaf group has too few of, a
server's memory, the device of a server that has no host. A server in the worker's own node is
reached by the links inside.

Leaves out: that shards may be uneven; a worker alone is not narrowed by up-links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from parsim.arrays import Array, Flags, Index, sorted_values
from parsim.cluster.hardware import System
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.compression import compress_time, sum_bytes, unpack_bytes
from parsim.cost.server_rates import (
    device_interface,
    host_link,
    leaf_group,
    near_seconds,
    node_interfaces,
    up_links,
)
from parsim.plan.strategies import AsynchronousServer, ParameterServer
from parsim.sim.data_parallel.server_memory import ServerMemory
from parsim.sim.data_parallel.workers import DIVIDED, Workers
from parsim.strategy.program import Queue

ServerStrategy = ParameterServer | AsynchronousServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerWires:
    """Queues on the way `there` and `back`, those of updates `applied`, and seconds by name.

    `node` (k,) is each server's node, `rank` (k,) the worker on whose device it is (-1: on a host),
    `received` and `sent` are bytes of a server a step of all workers.
    """

    there: tuple[Queue, ...]
    back: tuple[Queue, ...]
    applied: tuple[Queue, ...]
    seconds: dict[str, Array]
    node: Index
    rank: Index
    received: float
    sent: float
    on_hosts: bool


def server_wires(
    workers: Workers, strategy: ServerStrategy, *, sums: bool, pieces: int = 1
) -> ServerWires:
    """Lay out servers and price what their messages pass; `sums` gradients before an update.

    A push is that of one of the gradient's `pieces`.
    """
    layout = _Layout(workers, strategy, at_once=sums)
    whole, width = workers.gradient_bytes / layout.servers, workers.gradient_width
    push = workers.gradient_bytes * strategy.compression / layout.servers * layout.part / pieces
    pull = workers.weight_bytes / layout.servers * layout.part
    added = sum_bytes(strategy, whole * layout.part / pieces, width) if sums else 0.0
    changed = DIVIDED / width * whole if sums else unpack_bytes(strategy, whole, width)
    read = pull if layout.on_hosts else 2.0 * pull  # to be sent, or copied for the worker there
    answered = 0.0 if sums else 2.0 * pull  # one by one, a reply is copied behind its update
    there = tuple(layout.queues("push", push, out="out", into="in", memory=added))
    back = tuple(layout.queues("pull", pull, out="in", into="out", memory=read if sums else 0.0))
    update = layout.memory.update(answered + changed, clips=sums)
    layout.seconds["server_optimizer"] = update
    layout.priced("compress", layout.compress)
    applied = tuple(
        Queue(rows=(f"server {number} memory",), price=layout.priced(f"apply {number}", seconds))
        for number, seconds in enumerate(update)
    )
    return ServerWires(
        there=there,
        back=back,
        applied=applied,
        seconds=layout.seconds,
        node=layout.node,
        rank=layout.rank,
        received=workers.count * push * pieces,
        sent=workers.count * pull,
        on_hosts=layout.on_hosts,
    )


@dataclass(slots=True)
class _Layout:
    """Where servers are, whether they work `at_once`, and the seconds that are known so far."""

    workers: Workers
    strategy: ServerStrategy
    at_once: bool
    seconds: dict[str, Array] = field(default_factory=dict)

    @property
    def servers(self) -> int:
        """How many servers there are."""
        places = len(self.workers.systems) if self.on_hosts else self.workers.count
        return self.strategy.servers or places

    @property
    def part(self) -> float:
        """Share of a gradient and of the weights that a worker sends and fetches.

        Less than all where the workers of a node sum first: of as many as the mean node has.
        """
        summed = isinstance(self.strategy, ParameterServer) and self.strategy.node_sums
        return len(self.workers.nodes) / self.workers.count if summed else 1.0

    @property
    def on_hosts(self) -> bool:
        """Whether servers are in the memory of hosts, not of devices."""
        return self.strategy.on == "hosts"

    @property
    def rank(self) -> Index:
        """The worker whose device a server is on, spread evenly; -1 on hosts."""
        numbers = np.arange(self.servers)
        if self.on_hosts:
            return np.full(self.servers, -1)
        return np.asarray(numbers * self.workers.count // self.servers)

    @property
    def memory(self) -> ServerMemory:
        """What servers add, copy and update in."""
        return ServerMemory(
            workers=self.workers, node=self.node, rank=self.rank, at_once=self.at_once
        )

    @property
    def node(self) -> Index:
        """The node of each server."""
        if not self.on_hosts:
            return np.asarray(self.workers.node[self.rank])
        return np.asarray(np.arange(self.servers) * len(self.workers.systems) // self.servers)

    def system(self, node: int) -> System:
        """The kind of a node."""
        return self.workers.systems[node]

    def priced(self, name: str, seconds: Array | float) -> str:
        """Note the seconds of a name."""
        self.seconds[name] = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        return name

    def queues(
        self, verb: str, shard: float, *, out: str, into: str, memory: float
    ) -> Iterator[Queue]:
        """The queues that shards of so many bytes pass on their way, in terms of a push."""
        mine, theirs = self.workers.node, self.node
        remote = mine[:, None] != theirs
        self.priced(f"{verb}_latency", self._alone(shard, remote))
        if remote.any():
            rates = [node_interfaces(system) for system in self.workers.systems]
            rate = np.array(rates)[mine]
            name = self.priced(f"{verb} {out}", remote.sum(axis=1) * shard / rate)
            leaves = zip(mine, remote.any(axis=1), strict=True)
            rows = tuple(f"node {node} {out}" if far else "" for node, far in leaves)
            yield Queue(rows=rows, price=name, link=True)
            for node in sorted_values(theirs).tolist():
                bytes_there = float((theirs == node).sum()) * shard
                seconds = bytes_there / node_interfaces(self.system(node))
                rows = _where(mine != node, f"node {node} {into}")
                name = self.priced(f"{verb} {into} {node}", seconds)
                yield Queue(rows=rows, price=name, link=True)
        yield from self._up_links(verb, shard, out, into)
        for number in range(self.servers):
            yield from self._at_server(verb, number, shard, into, memory)

    def _up_links(self, verb: str, shard: float, out: str, into: str) -> Iterator[Queue]:
        """What all messages out of a leaf group and into one pass, if it has too few up-links."""
        system = self.system(0)
        if system.network is None or system.network.oversubscription <= 1.0:
            return
        mine, theirs = (leaf_group(system, node) for node in (self.workers.node, self.node))
        beyond = (mine[:, None] != theirs).sum(axis=1)
        if not beyond.any():
            return
        name = self.priced(f"{verb} leaf {out}", beyond * shard / up_links(system))
        yield Queue(rows=tuple(f"leaf {leaf} {out}" for leaf in mine), price=name, link=True)
        for leaf in sorted_values(theirs).tolist():
            seconds = float((theirs == leaf).sum()) * shard / up_links(system)
            rows = _where(mine != leaf, f"leaf {leaf} {into}")
            name = self.priced(f"{verb} leaf {into} {leaf}", seconds)
            yield Queue(rows=rows, price=name, link=True)

    def _at_server(
        self, verb: str, number: int, shard: float, into: str, memory: float
    ) -> Iterator[Queue]:
        """What all messages of one server pass there: its link inside the node, its memory."""
        system, rank = self.system(int(self.node[number])), int(self.rank[number])
        if not self.on_hosts or system.intra.fabric == "shared-memory":
            near = self.workers.node == self.node[number]
            if rank >= 0:
                near[rank] = False
            rows = _where(near, f"server {number} {into}")
            name = self.priced(f"{verb} near {number}", near_seconds(system, shard, 0.0))
            yield Queue(rows=rows, price=name, link=True)
        if memory:
            seconds = self.memory.moving(number, memory)
            name = self.priced(f"{verb} memory {number}", seconds)
            yield Queue(rows=self._rows(verb, number), price=name)

    def _rows(self, verb: str, number: int) -> tuple[str, ...]:
        """The queue of a server's memory, for each worker or for all: whose messages pass it.

        A server on a device takes the gradient of the worker there as its sum, to which it adds
        the others', and copies its weights for that worker; the others' are sent from where they
        are, which their message's time holds.
        """
        queue, rank = f"server {number} memory", int(self.rank[number])
        if self.on_hosts or (verb == "push" and self.strategy.compression < 1.0):
            return (queue,)
        beside = np.arange(self.workers.count) == rank
        return _where(beside == (verb == "pull"), queue)

    def _alone(self, shard: float, remote: Array) -> Array:
        """Seconds of a worker's messages where nobody else sends: its own links and latency."""
        seconds, systems = [], self.workers.systems
        for worker, node in enumerate(self.workers.node.tolist()):
            system, far = systems[node], float(remote[worker].sum())
            near = self.servers - far - float((self.rank == worker).sum())
            latency = float(p2p_time(system, 1.0, crosses=far > 0, sharing=1.0))
            if self.on_hosts:
                inside = (near + far) * shard / host_link(system)
            else:
                inside = near_seconds(system, near * shard, self._back(worker) * shard)
            seconds.append(latency + max(inside, far * shard / device_interface(system)))
        return np.array(seconds)

    def _back(self, worker: int) -> int:
        """How many shards pass a worker's links the other way at the same time: to its servers."""
        beside = int((self.workers.node == self.workers.node[worker]).sum()) - 1
        return beside * int((self.rank == worker).sum()) if self.at_once else 0

    @property
    def compress(self) -> Array:
        """Seconds in which each worker packs its gradient, (n,)."""
        workers = self.workers
        values, width = workers.parameters, workers.gradient_width
        systems = workers.systems
        devices = [systems[node].device for node in workers.node.tolist()]
        return np.array([
            float(compress_time(device, self.strategy, values, width)) for device in devices
        ])  # fmt: skip


def _where(passes: Flags, queue: str) -> tuple[str, ...]:
    """The name of a queue for the workers whose messages pass it."""
    return tuple(queue if each else "" for each in passes.tolist())
