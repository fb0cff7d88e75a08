"""Traffic beside a training step: checkpoints to storage, batches, copies to the host."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from parsim.errors import CatalogError, InputError, shown

Place = Literal["devices", "hosts", "storage"]
"""Every device that the plan uses, the hosts of its nodes, or the storage that all nodes share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """One kind of traffic: `size` bytes every so many steps, or `rate` bytes/s all the time.

    Both are those of one device where a device is at an end, else of one node.
    """

    name: str
    source: Place
    target: Place
    size: float | None = None
    rate: float | None = None
    every: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """All streams of a job; `storage_bandwidth` is what all storage servers send or take, bytes/s.

    Storage hangs on the highest switches of the fabric (spines, else leaves, else routers).
    """

    streams: tuple[Stream, ...] = ()
    storage_bandwidth: float | None = None

    @property
    def needs_storage(self) -> bool:
        """Whether a stream begins or ends there."""
        return any("storage" in (stream.source, stream.target) for stream in self.streams)

    def check(self) -> None:
        """Refuse what cannot run.

        Raises:
            InputError: naming the stream.
        """
        counts = Counter(stream.name for stream in self.streams)
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise InputError(f"stream '{twice[0]}' stands there twice; give each its own name")
        for stream in self.streams:
            _check(stream)
        if self.needs_storage and self.storage_bandwidth is None:
            raise InputError(
                "a stream uses storage, and storage_bandwidth is missing; write what all storage "
                "servers send or take together, e.g. 'storage_bandwidth: 100GB/s'"
            )


def _check(stream: Stream) -> None:
    ends = {stream.source, stream.target}
    if len(ends) < 2:
        raise InputError(
            f"stream '{shown(stream.name)}' goes from {stream.source} to {stream.target}; "
            f"allowed are two different ones of devices, hosts, storage"
        )
    if (stream.size is None) == (stream.rate is None):
        raise InputError(
            f"stream '{shown(stream.name)}' needs either size (bytes each time) or rate (all the "
            f"time)"
        )
    if stream.rate is not None and stream.every != 1:
        raise InputError(
            f"stream '{shown(stream.name)}' has a rate, so it flows all the time; leave out "
            f"every={stream.every}, or give a size"
        )


def check_network(background: Background, joined: bool, system: str) -> None:
    """Refuse storage where no network leads to it.

    Raises:
        CatalogError: naming the system.
    """
    if background.needs_storage and not joined:
        raise CatalogError(
            f"system {system} has no network, so no stream reaches storage; "
            f"use hosts, or a system with a network"
        )
