"""A small product on one core, which tells how fast the core is now: no counter does.

A virtual machine's core is often one of two threads of a real one. Whoever has the other thread
takes up to half of its speed, for seconds or minutes, and to this machine that looks like nothing:
it waits for no core and none is stolen.
"""

from __future__ import annotations

import time

import torch

EDGE = 256
"""Edge of the square product: a third of a millisecond of a core, in its caches."""
TRIES = 5
"""Products at a time, of which the quickest counts: an interruption is not a slow core."""


class CoreProduct:
    """A product of two square matrices in fp32, made when it is first asked for."""

    def __init__(self) -> None:
        self._tensors: tuple[torch.Tensor, ...] = ()

    def seconds(self) -> float:
        """Seconds of the product on this thread's core now, the least of some tries."""
        if not self._tensors:
            self._tensors = tuple(torch.ones(EDGE, EDGE, device="cpu") for _ in range(3))
            self._once()  # the library prepares itself
        return min(self._once() for _ in range(TRIES))

    def _once(self) -> float:
        left, right, out = self._tensors
        begin = time.perf_counter()
        torch.mm(left, right, out=out)
        return time.perf_counter() - begin
