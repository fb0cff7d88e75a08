"""What ranks send each other, as data: closed forms price it, flows carry it over links."""

from __future__ import annotations

from dataclasses import dataclass, replace

from parsim.arrays import Array
from parsim.cluster.hardware import System
from parsim.cost.collective.choice import forced_time
from parsim.cost.collective.collectives import collective_time, waiting_time
from parsim.cost.collective.group_bandwidth import Groups
from parsim.cost.collective.kinds import Algorithm, CollectiveKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A collective of a group of ranks, for B plans.

    `axis` names the group: `tp`, `cp`, `ep`, `etp`, `shard` (ranks that share parameters),
    `replicate` (ranks that hold the same ones) or `world`. `size` (B,) are bytes as nccl-tests
    count them, `where` is the group's placement. `queued` messages stand in a row of their own
    stream, behind others of the group (`collective_time`). `algorithm` is forced; None: the
    library's choice.
    """

    kind: CollectiveKind
    axis: str
    size: Array
    where: Groups
    queued: bool = False
    algorithm: Algorithm | None = None

    def seconds(self, system: System) -> Array:
        """What it takes on a quiet network, (B,)."""
        if self.algorithm is not None:
            return forced_time(
                system, self.kind, self.size, self.where, self.algorithm, queued=self.queued
            )
        return collective_time(system, self.kind, self.size, self.where, queued=self.queued)

    def waiting(self, system: System) -> Array:
        """How much of it is latency, (B,)."""
        return waiting_time(system, self.kind, self.size, self.where, queued=self.queued)

    def instead(self, kind: CollectiveKind) -> Message:
        """Another collective of the same bytes in the same group."""
        return replace(self, kind=kind)
