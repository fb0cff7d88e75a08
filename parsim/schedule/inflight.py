"""How many micro-batches' activations each chunk of a rank holds at once.

A micro-batch is in flight on a stage from its F until its B, or its W where the backward is
split, has finished. Memory is linear in these counts, so the peak of any weighting of the
chunks lies at one of the vectors that no other vector exceeds in every chunk.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parsim.schedule.actions import Action, Kind, Schedule

Counts = tuple[int, ...]
"""Micro-batches in flight, one number per chunk of a rank, chunks by ascending stage."""


def inflight_counts(schedule: Schedule) -> tuple[tuple[Counts, ...], ...]:
    """The Pareto-maximal counts of micro-batches in flight, for each pipeline rank.

    The peak activation memory of rank r is the largest sum(w * n) over `result[r]`, with w the
    bytes of one micro-batch on each chunk. Communication actions are ignored. Within a rank the
    vectors come in descending order.
    """
    return tuple(
        _maximal(_peaks(row, schedule.stages_on(rank))) for rank, row in enumerate(schedule.ranks)
    )


def _peaks(row: Iterable[Action], stages: tuple[int, ...]) -> set[Counts]:
    """The counts at every local maximum: after an F whose next compute action releases."""
    chunk_of = {stage: chunk for chunk, stage in enumerate(stages)}
    counts = [0] * len(stages)
    peaks: set[Counts] = set()
    rising = False
    for stage, kind, _ in row:
        if kind == Kind.F:
            counts[chunk_of[stage]] += 1
            rising = True
        elif kind == Kind.B or kind == Kind.W:
            if rising:
                peaks.add(tuple(counts))
                rising = False
            counts[chunk_of[stage]] -= 1
    peaks.add(tuple(counts))
    return peaks


def _maximal(vectors: set[Counts]) -> tuple[Counts, ...]:
    """Drop every vector that another one reaches or exceeds in all chunks."""
    # By falling sum, a vector can only be exceeded by one that comes before it.
    left = np.array(sorted(vectors, key=lambda counts: (-sum(counts), counts)), dtype=np.int64)
    kept: list[Counts] = []
    while len(left):
        top = left[0]
        kept.append(tuple(top.tolist()))
        left = left[(left > top).any(axis=1)]
    return tuple(sorted(kept, reverse=True))
