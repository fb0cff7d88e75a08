"""Where servers are, and how long a worker's messages to them take while nobody else sends.

Gradients and weights are shared out to the servers evenly, and their shards travel at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags, Index
from parsim.cluster.hardware import System
from parsim.cost.collective.collectives import p2p_time
from parsim.cost.compression import compress_time
from parsim.cost.server_rates import device_interface, host_link, near_seconds
from parsim.plan.strategies import AsynchronousServer, ParameterServer
from parsim.sim.data_parallel.server_memory import ServerMemory
from parsim.sim.data_parallel.workers import Workers

ServerStrategy = ParameterServer | AsynchronousServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLayout:
    """The servers of a strategy among its workers, and whether they work `at_once`."""

    workers: Workers
    strategy: ServerStrategy
    at_once: bool

    @property
    def count(self) -> int:
        """How many servers there are, k."""
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
        """The worker whose device a server is on, spread evenly; -1 on hosts, (k,)."""
        numbers = np.arange(self.count)
        if self.on_hosts:
            return np.full(self.count, -1)
        return np.asarray(numbers * self.workers.count // self.count)

    @property
    def node(self) -> Index:
        """The node of each server, (k,)."""
        if not self.on_hosts:
            return np.asarray(self.workers.node[self.rank])
        return np.asarray(np.arange(self.count) * len(self.workers.systems) // self.count)

    @property
    def remote(self) -> Flags:
        """Whether each server is in another node than each worker, (n, k)."""
        return np.asarray(self.workers.node[:, None] != self.node)

    @property
    def memory(self) -> ServerMemory:
        """What servers add, copy and update in."""
        return ServerMemory(
            workers=self.workers, node=self.node, rank=self.rank, at_once=self.at_once
        )

    def system(self, node: int) -> System:
        """The kind of a node."""
        return self.workers.systems[node]

    def alone(self, shard: float) -> Array:
        """Seconds of each worker's messages where nobody else sends, (n,).

        That is latency, and the slower of the links inside its node and those out of it.
        """
        far = self.remote.sum(axis=1).tolist()
        return np.array([self._alone(worker, shard, float(n)) for worker, n in enumerate(far)])

    def _alone(self, worker: int, shard: float, far: float) -> float:
        """Seconds of a worker's messages, so many of them to servers in other nodes."""
        system = self.system(int(self.workers.node[worker]))
        latency = float(p2p_time(system, 1.0, crosses=far > 0, sharing=1.0))
        near = self.count - far - float((self.rank == worker).sum())
        if self.on_hosts:
            inside = (near + far) * shard / host_link(system)
        else:
            inside = near_seconds(system, near * shard, self._back(worker) * shard)
        return latency + max(inside, far * shard / device_interface(system))

    def _back(self, worker: int) -> int:
        """How many shards pass a worker's links the other way at the same time: to its servers."""
        beside = int((self.workers.node == self.workers.node[worker]).sum()) - 1
        return beside * int((self.rank == worker).sum()) if self.at_once else 0

    @property
    def compress(self) -> Array:
        """Seconds in which each worker packs its gradient, (n,)."""
        workers = self.workers
        values, width = workers.parameters, workers.gradient_width
        devices = [self.system(node).device for node in workers.node.tolist()]
        return np.array([
            float(compress_time(device, self.strategy, values, width)) for device in devices
        ])  # fmt: skip
