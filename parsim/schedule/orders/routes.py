"""Which action of which rank feeds which, where stages may have replicas.

    stage 0 replica 0   F0   F2        action number 1 of a kind is micro-batch 2 here,
    stage 0 replica 1     F1   F3      3 there, and feeds number 2 or 3 of stage 1
    stage 1                 F0 F1 F2

A rank's actions of one kind are numbered in the order of its micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parsim.schedule.replicas import StageReplicas

F, B, W = range(3)
"""What a rank may run next: a forward, a backward or its input half, a weight gradient."""

Key = tuple[int, int, int]
"""Rank, kind, number."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The ways of `count` micro-batches through a pipeline's stages and back."""

    replicas: StageReplicas
    count: int

    def source(self, rank: int, kind: int, number: int) -> Key | None:
        """The action that a forward or a backward waits for, None of the first stage's forwards."""
        stage = self.replicas.stage_of[rank]
        if kind == F:
            return self._at(rank, number, stage - 1, F) if stage else None
        if stage == self.replicas.stages - 1:
            return rank, F, number
        return self._at(rank, number, stage + 1, B)

    def user(self, rank: int, kind: int, number: int) -> Key | None:
        """The action that waits for a forward or a backward, None for the first stage's own."""
        stage = self.replicas.stage_of[rank]
        if kind == F:
            last = stage == self.replicas.stages - 1
            return (rank, B, number) if last else self._at(rank, number, stage + 1, F)
        return self._at(rank, number, stage - 1, B) if stage else None

    def _at(self, rank: int, number: int, stage: int, kind: int) -> Key:
        """What takes the same micro-batch at another stage."""
        here = self.replicas.stage_of[rank]
        within = rank - self.replicas.ranks(here)[0]
        microbatch = within + self.replicas.counts[here] * number
        there = self.replicas.rank(stage, microbatch)
        return there, kind, microbatch // self.replicas.counts[stage]

    def each(self, rank: int) -> int:
        """Micro-batches of a rank."""
        return self.count // self.replicas.counts[self.replicas.stage_of[rank]]

    def table(self, user: bool) -> Iterator[tuple[list[Key | None], list[Key | None]]]:
        """For each rank those of all its forwards, then of all its backwards."""
        way = self.user if user else self.source
        for rank in range(self.replicas.num_ranks):
            numbers = range(self.each(rank))
            yield [way(rank, F, n) for n in numbers], [way(rank, B, n) for n in numbers]
