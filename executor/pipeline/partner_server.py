"""Keeps what a partner sends away and gives it back: a thread beside this rank's actions."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Thread

import torch
import torch.distributed as dist
from torch import Tensor

from executor.pipeline.outbox import BESIDE
from parsim.schedule.actions import Move


class PartnerServer(Thread):
    """Takes a partner's activations and gives them back, in the order of the partner's actions."""

    def __init__(self, served: Sequence[Move], group: dist.ProcessGroup, other: int) -> None:
        super().__init__(name=BESIDE, daemon=True)
        self.error: BaseException | None = None
        self._served, self._group, self._other = served, group, other
        self._kept: dict[int, list[Tensor]] = {}
        self.most_kept = 0

    def run(self) -> None:
        """What the thread does: every move that its partner's schedule has."""
        try:
            for evicted, loaded in self._served:
                both = evicted >= 0 and loaded >= 0
                if loaded >= 0 and both:  # B 0 gets its micro-batch back before it sends one
                    self._give(loaded)
                if evicted >= 0:
                    self._kept[evicted] = self._take()
                    now = sum(part.nbytes for parts in self._kept.values() for part in parts)
                    self.most_kept = max(self.most_kept, now)
                if loaded >= 0 and not both:
                    self._give(loaded)
        except BaseException as error:  # the rank that joins raises it
            self.error = error

    def _take(self) -> list[Tensor]:
        count = self._received(torch.empty(1, dtype=torch.int64))
        sizes = self._received(torch.empty(int(count), dtype=torch.int64))
        empty = (torch.empty(int(size), dtype=torch.uint8) for size in sizes)
        return [self._received(tensor) for tensor in empty]

    def _received(self, tensor: Tensor) -> Tensor:
        dist.recv(tensor, group=self._group, group_src=self._other)
        return tensor

    def _give(self, microbatch: int) -> None:
        for tensor in self._kept.pop(microbatch):
            dist.send(tensor, group=self._group, group_dst=self._other)
