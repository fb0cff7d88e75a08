"""What has to be ordered, whoever finds the order, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parsim.schedule.orders.weight_fill import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Stages on ranks, micro-batches through copies of the model, lengths, limits.

    `forward` and `backward` are lengths of each stage's F and B, `message` that of a message
    between ranks; `limits` are the chunks that each rank may hold from F to B. Where the backward
    is in two, `backward` are lengths of I, `weight` those of W, and a chunk is held to its W.
    """

    stage_rank: Sequence[int]
    num_microbatches: int
    forward: Sequence[float]
    backward: Sequence[float]
    limits: Sequence[int]
    message: float = 0.0
    copies: int = 1
    weight: Sequence[float] = ()

    @property
    def depth(self) -> int:
        """Stages that a micro-batch goes through."""
        return len(self.stage_rank) // self.copies

    def microbatches_of(self, copy: int) -> range:
        """The micro-batches that go through a copy."""
        m, copies = self.num_microbatches, self.copies
        return range(copy * m // copies, (copy + 1) * m // copies)

    def stages_by_depth(self, rank: int) -> list[int]:
        """The stages of a rank, the deepest of its copy first."""
        stages = [stage for stage, where in enumerate(self.stage_rank) if where == rank]
        return sorted(stages, key=lambda stage: -(stage % self.depth))


@dataclass(frozen=True, slots=True)
class Ordered:
    """The rows that were found, and when the last action ends."""

    rows: Rows
    makespan: float
