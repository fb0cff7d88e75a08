"""Gradients of a stage on their way to being summed over its replicas, round after round.

    late updates    B of round 0 | sum 0 begins | B of round 1 | sum 1 begins | sum 0 is over | U1
    others          B of round 0 | sum 0 begins, is over | U1 | B of round 1 | ...

All replicas begin the sums of their parameters in one order, so that none takes another's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch.distributed as dist

from executor.pipeline.stage_groups import Weights


@dataclass(frozen=True, slots=True)
class Round:
    """A round's gradient, whose sums are under way, and the version that it makes."""

    version: int
    gradient: Weights
    sums: list[dist.Work]


@dataclass(slots=True)
class ReplicaSums:
    """Sums over the `count` replicas of a stage, which are the ranks of `sharers`."""

    count: int
    sharers: dist.ProcessGroup | None
    rounds: deque[Round] = field(default_factory=deque)

    def begin(self, version: int, gradient: Weights) -> None:
        """Begin to sum the gradient that makes a version; it is kept until it is taken."""
        parts = gradient if self.count > 1 else []
        sums = [dist.all_reduce(part, group=self.sharers, async_op=True) for part in parts]
        self.rounds.append(Round(version, gradient, sums))

    def take(self, left: int = 0) -> Iterator[tuple[int, Weights]]:
        """The versions and mean gradients of all rounds but so many, the oldest first."""
        while len(self.rounds) > left:
            oldest = self.rounds.popleft()
            for summed in oldest.sums:
                summed.wait()
            for part in oldest.gradient if self.count > 1 else []:
                part /= self.count
            yield oldest.version, oldest.gradient
