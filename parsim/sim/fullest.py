"""The rank whose device has the least memory to spare: the one peak that is shown of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FullestRank:
    """The rank whose peak takes the largest share of what its device has for training; bytes.

    On devices of one kind it is the rank with the highest peak; of unequal devices a smaller peak
    may be nearer to its limit.

    `rank` is a pipeline rank, or the number of a role of a strategy. `devices` and `groups` are
    those that it lies on, and `capacity` is the memory of the smallest of them, of which the
    driver keeps `context`. `peak_reserved` is what the allocator takes for `peak_allocated`.
    """

    rank: int
    devices: tuple[str, ...]
    groups: tuple[str, ...]
    peak_allocated: float
    peak_reserved: float
    context: float
    capacity: float

    @property
    def usable(self) -> float:
        """Memory of its device that is left for training, bytes."""
        return self.capacity - self.context

    @property
    def share(self) -> float:
        """Its peak as a share of what is usable; above 1 it does not fit."""
        return self.peak_allocated / self.usable

    def to_json(self) -> dict[str, Any]:
        """Plain data with units in the names."""
        return {
            "rank": self.rank,
            "devices": list(self.devices),
            "node_groups": list(self.groups),
            "peak_allocated_bytes": self.peak_allocated,
            "peak_reserved_bytes": self.peak_reserved,
            "usable_memory_bytes": self.usable,
        }
