"""What a count of memory says: bytes on each pipeline rank by category, for B plans of a shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array

CATEGORIES = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "temporary",
    "communication",
    "gathered",
)

STATIC = ("parameters", "gradients", "optimizer")
"""The categories that stay for the whole run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Bytes per category, each (p, B); `in_flight` micro-batches per stage at the peak, (S, B).

    `uncached` bytes (p, B) of the update's copies are reserved beside the peak: no segment that
    the allocator has cached is as large as such a copy (`parsim/sim/memory/reserved.py`).

    `on_host` are bytes of the whole run in the host's memory, (p, B); None: of none.

    `parameters`, `gradients` and `optimizer` stay for the whole run. At the peak there are beside
    them the `activations` of micro-batches in flight, `logits` and what the loss makes of them,
    `temporary` buffers of the layer at work, buffers of `communication`, and parameters that were
    sharded and are `gathered`. Where the update is higher, copies of gradients are `temporary`.
    """

    parameters: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    temporary: Array
    communication: Array
    gathered: Array
    in_flight: Array
    uncached: Array
    on_host: Array | None = None

    @property
    def peak(self) -> Array:
        """Sum of all categories, (p, B)."""
        return np.asarray(np.sum([getattr(self, name) for name in CATEGORIES], axis=0))

    @property
    def static(self) -> Array:
        """What stays for the whole run, (p, B)."""
        return np.asarray(self.parameters + self.gradients + self.optimizer)

    def at(self, rank: int, row: int) -> dict[str, float]:
        """Category to bytes for one rank of one plan."""
        return {name: float(getattr(self, name)[rank, row]) for name in CATEGORIES}
