"""What has to be ordered, whoever finds the order, and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.replicas import StageReplicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Stages on ranks, micro-batches through copies of the model, lengths, limits.

    `forward` and `backward` are lengths of each stage's F and B, `message` that of a message
    between ranks; `limits` are the chunks that each rank may hold from F to B. Where the backward
    is in two, `backward` are lengths of I, `weight` those of W, and a chunk is held to its W.

    Only searches of one stage a rank know `counts`, the replicas of each stage, which then take its
    micro-batches in turn on ranks of their own (none: one each; `limits` are those of a replica),
    and `borders`, lengths of messages ahead and back at each border, (p - 1,) both, where
    they are not all `message`.
    """

    stage_rank: Sequence[int]
    num_microbatches: int
    forward: Sequence[float]
    backward: Sequence[float]
    limits: Sequence[int]
    message: float = 0.0
    copies: int = 1
    weight: Sequence[float] = ()
    counts: tuple[int, ...] = ()
    borders: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def replicas(self) -> StageReplicas:
        """Who takes the micro-batches of each stage."""
        return StageReplicas(self.counts or (1,) * len(self.stage_rank))

    @property
    def hops(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lengths of messages ahead and back at each border, (p - 1,) both."""
        alike = (self.message,) * (len(self.stage_rank) - 1)
        return self.borders or (alike, alike)

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
