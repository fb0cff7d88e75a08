"""What a message between workers and servers passes, and how long each part serves it.

    worker 0 ── its link ──┐
    worker 1 ── its link ──┴ node 0 out ──  ... ── node 3 in ── server 3 memory
                                        and back by node 3 out, node 0 in

What several workers pass is a queue: a node's interfaces, up-links that a leaf group has too few
of, a server's memory, the device of a server that has no host. A server in the worker's own node is
reached by the links inside.

Leaves out: that shards may be uneven; a worker alone is not narrowed by up-links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from parsim.arrays import Array, Flags, Index, sorted_values
from parsim.cost.compression import sum_bytes, unpack_bytes
from parsim.cost.server_rates import leaf_group, near_seconds, node_interfaces, up_links
from parsim.sim.data_parallel.server_layout import ServerLayout, ServerStrategy
from parsim.sim.data_parallel.workers import DIVIDED, Workers
from parsim.strategy.parameter_server import role_of_server
from parsim.strategy.task import Queue


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
    layout = ServerLayout(workers=workers, strategy=strategy, at_once=sums)
    push, pull = _ways(layout, pieces)
    wires = _Wires(layout)
    there, back = tuple(wires.queues(push)), tuple(wires.queues(pull))
    return ServerWires(
        there=there,
        back=back,
        applied=tuple(wires.updates()),
        seconds=wires.seconds,
        node=layout.node,
        rank=layout.rank,
        received=workers.count * push.shard * pieces,
        sent=workers.count * pull.shard,
        on_hosts=layout.on_hosts,
    )


class _Way(NamedTuple):
    """Messages one way: a push goes `out` of a worker's node and `into` a server's, a pull back.

    `shard` are the bytes of a message, `moved` those that a server's memory moves for it.
    """

    verb: str
    shard: float
    out: str
    into: str
    moved: float


def _ways(layout: ServerLayout, pieces: int) -> tuple[_Way, _Way]:
    """A push of one of a gradient's pieces, and a pull of the weights."""
    workers, strategy, part = layout.workers, layout.strategy, layout.part
    whole, width = workers.gradient_bytes / layout.count, workers.gradient_width
    push = workers.gradient_bytes * strategy.compression / layout.count * part / pieces
    pull = workers.weight_bytes / layout.count * part
    added = sum_bytes(strategy, whole * part / pieces, width) if layout.at_once else 0.0
    read = pull if layout.on_hosts else 2.0 * pull  # to be sent, or copied for the worker there
    return (
        _Way("push", push, out="out", into="in", moved=added),
        _Way("pull", pull, out="in", into="out", moved=read if layout.at_once else 0.0),
    )


@dataclass(slots=True)
class _Wires:
    """The queues of a layout of servers, and the seconds that are known so far, by name."""

    layout: ServerLayout
    seconds: dict[str, Array] = field(default_factory=dict)

    def _priced(self, name: str, seconds: Array | float) -> str:
        """Note the seconds of a name."""
        self.seconds[name] = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        return name

    def updates(self) -> Iterator[Queue]:
        """The queue of each server's update, in which it moves what it sends or has unpacked."""
        layout, workers = self.layout, self.layout.workers
        whole, width = workers.gradient_bytes / layout.count, workers.gradient_width
        pull = workers.weight_bytes / layout.count * layout.part
        if layout.at_once:
            moved = DIVIDED / width * whole
        else:  # one by one, a reply is copied behind its update
            moved = 2.0 * pull + unpack_bytes(layout.strategy, whole, width)
        update = layout.memory.update(moved, clips=layout.at_once)
        self._priced("server_optimizer", update)
        self._priced("compress", layout.compress)
        for number, seconds in enumerate(update):
            name = self._priced(f"apply {number}", seconds)
            yield Queue(rows=(f"server {number} memory",), price=name, shown=role_of_server(number))

    def queues(self, way: _Way) -> Iterator[Queue]:
        """The queues that messages pass on a way: between nodes, up-links, at each server."""
        self._priced(f"{way.verb}_latency", self.layout.alone(way.shard))
        yield from self._between_nodes(way)
        yield from self._up_links(way)
        for number in range(self.layout.count):
            yield from self._at_server(way, number)

    def _between_nodes(self, way: _Way) -> Iterator[Queue]:
        """What all messages out of a node and into one pass: its interfaces."""
        layout, mine, theirs = self.layout, self.layout.workers.node, self.layout.node
        remote = layout.remote
        if not remote.any():
            return
        rate = np.array([node_interfaces(system) for system in layout.workers.systems])[mine]
        name = self._priced(f"{way.verb} {way.out}", remote.sum(axis=1) * way.shard / rate)
        leaves = zip(mine, np.asarray(remote.any(axis=1)), strict=True)
        rows = tuple(f"node {node} {way.out}" if far else "" for node, far in leaves)
        yield Queue(rows=rows, price=name, link=True)
        for node in sorted_values(theirs).tolist():
            seconds = _bytes_to(theirs == node, way) / node_interfaces(layout.system(node))
            name = self._priced(f"{way.verb} {way.into} {node}", seconds)
            rows = _where(mine != node, f"node {node} {way.into}")
            yield Queue(rows=rows, price=name, link=True)

    def _up_links(self, way: _Way) -> Iterator[Queue]:
        """What all messages out of a leaf group and into one pass, if it has too few up-links."""
        layout, system = self.layout, self.layout.system(0)
        if system.network is None or system.network.oversubscription <= 1.0:
            return
        mine, theirs = (leaf_group(system, node) for node in (layout.workers.node, layout.node))
        beyond = (mine[:, None] != theirs).sum(axis=1)
        if not beyond.any():
            return
        rate = up_links(system)
        name = self._priced(f"{way.verb} leaf {way.out}", beyond * way.shard / rate)
        yield Queue(rows=tuple(f"leaf {leaf} {way.out}" for leaf in mine), price=name, link=True)
        for leaf in sorted_values(theirs).tolist():
            seconds = _bytes_to(theirs == leaf, way) / rate
            name = self._priced(f"{way.verb} leaf {way.into} {leaf}", seconds)
            rows = _where(mine != leaf, f"leaf {leaf} {way.into}")
            yield Queue(rows=rows, price=name, link=True)

    def _at_server(self, way: _Way, number: int) -> Iterator[Queue]:
        """What all messages of one server pass there: its link inside the node, its memory."""
        layout, system = self.layout, self.layout.system(int(self.layout.node[number]))
        if not layout.on_hosts or system.intra.fabric == "shared-memory":
            rows = _where(self._near(number), f"server {number} {way.into}")
            seconds = near_seconds(system, way.shard, 0.0)
            name = self._priced(f"{way.verb} near {number}", seconds)
            yield Queue(rows=rows, price=name, link=True)
        if way.moved:
            name = self._priced(
                f"{way.verb} memory {number}", layout.memory.moving(number, way.moved)
            )
            rows = self._memory_rows(way.verb, number)
            yield Queue(rows=rows, price=name, shown=role_of_server(number))

    def _near(self, number: int) -> Flags:
        """The workers beside a server in its node, but for that on whose device it is."""
        layout, rank = self.layout, int(self.layout.rank[number])
        near = np.asarray(layout.workers.node == layout.node[number])
        if rank >= 0:
            near[rank] = False
        return near

    def _memory_rows(self, verb: str, number: int) -> tuple[str, ...]:
        """The queue of a server's memory, for each worker or for all: whose messages pass it.

        A server on a device takes the gradient of the worker there as its sum, to which it adds
        the others', and copies its weights for that worker; the others' are sent from where they
        are, which their message's time holds.
        """
        layout, queue = self.layout, f"server {number} memory"
        if layout.on_hosts or (verb == "push" and layout.strategy.compression < 1.0):
            return (queue,)
        beside = np.arange(layout.workers.count) == int(layout.rank[number])
        return _where(beside == (verb == "pull"), queue)


def _bytes_to(servers: Flags, way: _Way) -> float:
    """Bytes of a worker's messages to some of the servers."""
    return float(servers.sum()) * way.shard


def _where(passes: Flags, queue: str) -> tuple[str, ...]:
    """The name of a queue for the workers whose messages pass it."""
    return tuple(queue if each else "" for each in passes.tolist())
