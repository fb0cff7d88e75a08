"""One direction of a cable, and what it costs a route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parsim.cluster.hardware import LinkClass

# What a link costs a route, by class. Integers, so that equal routes are exactly equal. NVLink is
# preferred to PCI Express, and two NVLinks to two spine links: NCCL sends to another rail through
# the GPU of its own node that sits on that rail (PXN).
WEIGHTS: Mapping[LinkClass, int] = {
    "nvlink": 1,
    "shared-memory": 1,
    "c2c": 2,
    "pcie": 2,
    "cpu": 3,
    "nic": 4,
    "spine": 4,
    "cable": 4,
    "global": 4,
    "storage": 4,
}


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a cable: bytes/s as quoted, bytes/s that NCCL reaches, seconds."""

    source: str
    target: str
    link_class: LinkClass
    capacity: float
    effective: float
    latency: float

    @property
    def name(self) -> str:
        """How the link is written: source->target."""
        return f"{self.source}->{self.target}"
