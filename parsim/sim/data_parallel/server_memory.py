"""How fast servers add gradients, copy weights and update them, in hosts' memory or devices'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Index, sorted_values
from parsim.cluster.hardware import System
from parsim.cost.data.update import (
    clipped_bytes,
    clipping_time,
    share_update_time,
    updates_at_once,
)
from parsim.cost.kernel.kernels import ACCUMULATE, memory_time
from parsim.cost.server_rates import host_memory
from parsim.plan.precision import precision
from parsim.sim.data_parallel.workers import MASTER_BYTES, Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerMemory:
    """What servers of the workers work in, and whether they do it `at_once`.

    `node` (k,) is each server's node, `rank` (k,) the worker whose device it is on, -1 on hosts.
    """

    workers: Workers
    node: Index
    rank: Index
    at_once: bool

    @property
    def on_hosts(self) -> bool:
        """Whether servers are in the memory of hosts, not of devices."""
        return bool((self.rank < 0).all())

    def _system(self, number: int) -> System:
        """The kind of a server's node."""
        return self.workers.systems[int(self.node[number])]

    def moving(self, number: int, moved: float) -> float:
        """Seconds in which the memory that a server is in moves so many bytes.

        The servers of a host share it.
        """
        system = self._system(number)
        if self.on_hosts:
            return moved * float((self.node == self.node[number]).sum()) / host_memory(system)
        alone = float(memory_time(system.device, moved, 0, ACCUMULATE))
        return alone * self._slowdown(number)

    def _slowdown(self, number: int) -> float:
        """By how much servers on other devices of the node hold one up that works with them."""
        if not self.at_once:
            return 1.0
        here = sorted_values(self.rank[self.node == self.node[number]])
        system = self._system(number)
        return float(updates_at_once(system, np.array(len(here))))

    def update(self, copied: float, *, clips: bool) -> Array:
        """Seconds in which each server updates its shard, and moves so many bytes more, (k,).

        With `clips` it takes the norm of the mean gradient and clips it first.
        """
        update = self._on_host if self.on_hosts else self._on_device
        return np.array([
            update(number, clips=clips) + self.moving(number, copied)
            for number in range(len(self.node))
        ])  # fmt: skip

    def _on_host(self, number: int, *, clips: bool) -> float:
        """Seconds of a host's update in one pass over a shard.

        It reads a gradient, reads and writes the fp32 weights and Adam's two moments, and writes
        16-bit weights where these are sent.
        """
        job, formats = self.workers.job, precision(self.workers.plan.precision)
        each = MASTER_BYTES + 2.0 * (MASTER_BYTES + job.optimizer.states)
        each += formats.parameter if formats.master else 0.0
        each += clipped_bytes(job, formats.compute) if clips else 0.0
        moved = self.workers.parameters / len(self.node) * each
        return self.moving(number, moved) + job.update_overhead

    def _on_device(self, number: int, *, clips: bool) -> float:
        """Seconds of a shard's update on a device, as that of a worker's own weights there."""
        job, system = self.workers.job, self._system(number)
        shard, slowdown = self.workers.parameters / len(self.node), self._slowdown(number)
        seconds = share_update_time(job, system, shard, slowdown)
        if not clips:
            return seconds
        compute = precision(self.workers.plan.precision).compute
        return seconds + float(clipping_time(job, system, shard, compute, slowdown))
