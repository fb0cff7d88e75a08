"""A limit on what a rank sends and receives: a link of so many bytes a second, each way.

    received   | 30 MB |        | 30 MB || 30 MB |        one behind the other, in order of arrival
    sent             | 30 MB |                            the other way does not wait

Ranks of one machine share its memory, where exchanges take hardly longer than noise. With a limit
they take what a network of that rate takes: the real exchange runs meanwhile, and who waits for its
bytes sleeps until the link has carried them (a token bucket of no depth). The simulator has the
same link as the rate inside the node.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field

import torch

from executor.devices.all_ranks import largest


@dataclass(slots=True)
class Link:
    """Both directions of a rank's link; `rate` in bytes a second, infinite where nothing limits."""

    rate: float = math.inf
    _free: dict[str, float] = field(default_factory=lambda: {"received": 0.0, "sent": 0.0})
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.rate)

    def wait(self, *, received: float = 0.0, sent: float = 0.0, since: float | None = None) -> None:
        """Sleep until the link has carried so many bytes, behind those that were there before.

        Args:
            received: bytes that came in.
            sent: bytes that went out.
            since: when they began, as `time.perf_counter` says; None: now.
        """
        if not self.limited:
            return
        begin = time.perf_counter() if since is None else since
        with self._lock:
            ends = [
                self._carried(way, size, begin)
                for way, size in (("received", received), ("sent", sent))
                if size
            ]
        rest = max(ends, default=begin) - time.perf_counter()
        if rest > 0.0:
            time.sleep(rest)

    def _carried(self, way: str, size: float, begin: float) -> float:
        """When a direction has carried bytes that come then."""
        self._free[way] = max(self._free[way], begin) + size / self.rate
        return self._free[way]


def begun_together(link: Link, device: torch.device) -> float:
    """When all ranks are here, if their links are limited: bytes travel from then on.

    A sender that is late has sent nothing before. The ranks share a machine, and its clock. The
    `device` is the replicas', since NCCL reduces nothing in the host's memory.
    """
    now = time.perf_counter()
    if not link.limited:
        return now
    return largest(now, device)


def size_of(values: int) -> float:
    """Bytes of so many fp32 values."""
    return 4.0 * values
