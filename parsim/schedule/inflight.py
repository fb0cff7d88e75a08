"""How many micro-batches' activations each chunk of a rank has at once, and until when.

A micro-batch is in flight on a stage from its F until its B, or its W where the backward is
split, has finished. Memory is linear in these counts, so the peak of any weighting of the
chunks lies at one of the vectors that no other vector exceeds in every chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from parsim.arrays import Ints, sorted_values
from parsim.schedule.actions import Kind
from parsim.schedule.schedule import Schedule

WARM = frozenset({"1f1b", "eager_1f1b", "zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto"})
"""Schedules of one chunk a rank, in which rank r runs pp - r forwards before its first gradient."""

FOLDED: Mapping[str, Callable[[Ints, Ints], Ints]] = {
    "hanayo": lambda pp, v: pp * v,
    "zb_v": lambda pp, v: 2 * pp,
    "v_half": lambda pp, v: 2 * ((pp + 2) // 2),
    "v_min": lambda pp, v: 2 * ((pp + 4) // 3) - (pp % 3 == 2) - (pp == 2),
    "dualpipe_v": lambda pp, v: 2 * pp + 1,
}
"""Chunks that a rank of a folded schedule holds at the most: its limit, of ranks and chunks."""

TWO_WAY: Mapping[str, Callable[[Ints], Ints]] = {
    "chimera": lambda pp: pp,
    "dualpipe": lambda pp: pp + 1,
}
"""Micro-batches that a rank of a schedule that runs both ways holds at the most, of its ranks."""

Counts = tuple[int, ...]
"""Micro-batches in flight, one number per chunk of a rank, chunks by ascending stage."""


class _Same:
    """A schedule that equals itself alone, so that it is looked up without reading its actions."""

    __slots__ = ("schedule",)

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def __hash__(self) -> int:
        return id(self.schedule)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.schedule is other.schedule


def inflight_counts(schedule: Schedule) -> tuple[tuple[Counts, ...], ...]:
    """The Pareto-maximal counts of micro-batches in flight, for each pipeline rank.

    The peak activation memory of rank r is the largest sum(w * n) over `result[r]`, with w the
    bytes of one micro-batch on each chunk. Communication actions are ignored. Within a rank the
    vectors come in descending order. What lies on another rank is not counted, see
    `Schedule.guests`.
    """
    return _inflight_counts(_Same(schedule))


@lru_cache(maxsize=8)
def _inflight_counts(same: _Same) -> tuple[tuple[Counts, ...], ...]:
    schedule = same.schedule
    table, ends = schedule.table(), np.cumsum([len(row) for row in schedule.ranks])
    rows = np.split(table, ends[:-1])
    peaks = (_peaks(row, schedule.stages_on(rank)) for rank, row in enumerate(rows))
    limit = schedule.num_microbatches if schedule.limit is None else schedule.limit
    return tuple(_maximal(np.minimum(counts, limit)) for counts in peaks)


def split_counts(schedule: Schedule) -> tuple[tuple[Counts, ...], ...]:
    """The Pareto-maximal counts (from F to I, from I to W) for each pipeline rank.

    A vector has the micro-batches of each chunk whose I has not run, then those of each chunk
    that wait for their W only. A whole backward ends both. For weights of either kind the peak
    of a rank is the largest weighted sum over `result[r]`.
    """
    return _split_counts(_Same(schedule))


@lru_cache(maxsize=8)
def _split_counts(same: _Same) -> tuple[tuple[Counts, ...], ...]:
    schedule, peaks = same.schedule, []
    for rank, row in enumerate(schedule.ranks):
        stages = schedule.stages_on(rank)
        number = {stage: chunk for chunk, stage in enumerate(stages)}
        counts, seen = [0] * (2 * len(stages)), set()
        for stage, kind, _ in row:
            chunk = number[stage]
            if kind == Kind.F:
                counts[chunk] += 1
            elif kind in (Kind.B, Kind.I):
                counts[chunk] -= 1
                counts[len(stages) + chunk] += kind == Kind.I
            elif kind == Kind.W:
                counts[len(stages) + chunk] -= 1
            seen.add(tuple(counts))
        peaks.append(_maximal(np.array(sorted(seen), dtype=np.int64)))
    return tuple(peaks)


class InFlight(NamedTuple):
    """Micro-batches in flight on a rank: on its first chunk, on its last one, on all together.

    No number of a chunk is known of schedules that run both ways.
    """

    first: Ints
    last: Ints
    total: Ints


def least_in_flight(name: str, pp: Ints, v: Ints, rank: Ints, num_microbatches: Ints) -> InFlight:
    """Micro-batches in flight on a rank at some moment, from F to B or I, in no time.

    Of arrays of any equal shape, without the schedule's actions. Of naive, gpipe, looped_bfs, 1f1b
    and interleaved_1f1b exactly what a rank holds before its first gradient; never more than that
    of the other schedules of one chunk, whose ranks warm up with as many forwards as 1F1B's or
    more. Schedules whose stages go down the ranks and back up hold `FOLDED` chunks, less one for
    each rank behind that a warm-up of so few micro-batches has not come back from:

        min(limit(pp, v), v n - max(0, n - 1 - rank - max(0, m - pp))),   n = min(m, pp)

    Exactly the most of zb_v and v_half, and never more than that of the others (2 to 8 ranks, up to
    3 pp + 1 micro-batches). Schedules that run both ways hold on both of a rank's stages together,
    of m micro-batches, those that came to it before its first gradient,

        min(limit(pp), m, m/2 + 1 + min(rank, pp - 1 - rank))    limit: `TWO_WAY`

    which is exact for dualpipe and never more than chimera's. Any schedule has the same micro-batch
    in flight on all chunks of a rank when the last of them has run its forward. Of bpipe it is what
    a rank has of its own, its partner's not counted.
    """
    counted = _COUNTED.get(name, _last_chunk)
    return counted(pp, v, rank, np.asarray(num_microbatches))


def _whole_batch(pp: Ints, v: Ints, rank: Ints, m: Ints) -> InFlight:
    return InFlight(m, m, v * m)


def _last_chunk(pp: Ints, v: Ints, rank: Ints, m: Ints) -> InFlight:
    """One micro-batch on all chunks, when the last of them has run its forward."""
    return InFlight(np.ones_like(m), np.ones_like(m), v + np.zeros_like(m))


def _warmed_up(pp: Ints, v: Ints, rank: Ints, m: Ints) -> InFlight:
    flying = np.minimum(m, pp - rank)
    return InFlight(flying, flying, flying)


def _shared_out(pp: Ints, v: Ints, rank: Ints, m: Ints) -> InFlight:
    """What a rank of bpipe has of its own, which is no more than half of all and a little."""
    flying = np.minimum(np.minimum(m, pp - rank), (pp + 3) // 2)
    return InFlight(flying, flying, flying)


def _in_turns(pp: Ints, v: Ints, rank: Ints, m: Ints) -> InFlight:
    """Chunks in turn, pp micro-batches each."""
    forwards = np.minimum((v - 1) * pp + 2 * (pp - 1 - rank) + 1, m * v)
    rounds, rest = np.divmod(forwards, pp * v)
    last = rounds * pp + np.maximum(rest - (v - 1) * pp, 0)
    return InFlight(rounds * pp + np.minimum(rest, pp), last, forwards)


def _folded(
    limit: Callable[[Ints, Ints], Ints], pp: Ints, v: Ints, rank: Ints, m: Ints
) -> InFlight:
    n = np.minimum(m, pp)
    away = np.maximum(0, n - 1 - rank - np.maximum(0, m - pp))
    ones = np.ones_like(m + rank)
    return InFlight(ones, ones, np.minimum(limit(pp, v), v * n - away))


def _two_way(limit: Callable[[Ints], Ints], pp: Ints, v: Ints, rank: Ints, m: Ints) -> InFlight:
    nearest = np.minimum(rank, pp - 1 - rank)
    total = np.minimum(np.minimum(m, limit(pp)), m // 2 + 1 + nearest)
    return InFlight(np.zeros_like(total), np.zeros_like(total), total)


_COUNTED: Mapping[str, Callable[[Ints, Ints, Ints, Ints], InFlight]] = {
    **dict.fromkeys(("gpipe", "looped_bfs"), _whole_batch),
    **dict.fromkeys(WARM, _warmed_up),
    **{name: partial(_folded, limit) for name, limit in FOLDED.items()},
    **{name: partial(_two_way, limit) for name, limit in TWO_WAY.items()},
    "interleaved_1f1b": _in_turns,
    "bpipe": _shared_out,
}
"""How what a rank holds is counted, of pp, v, rank and m; of any other schedule `_last_chunk`."""


def completed_stages(schedule: Schedule) -> list[list[int]]:
    """Stages of each rank in the order of their last B or W, which completes their gradients."""
    completed = []
    for rank, row in enumerate(schedule.ranks):
        left, latest = set(schedule.stages_on(rank)), []
        for stage, kind, _ in reversed(row):
            if stage in left and (kind == Kind.B or kind == Kind.W):
                latest.append(stage)
                left.remove(stage)
                if not left:
                    break
        completed.append(latest[::-1])
    return completed


def _peaks(row: Ints, stages: tuple[int, ...]) -> Ints:
    """The distinct counts at every local maximum: after an F before the next release."""
    stage, kind = row[:, 0], row[:, 1]
    change = np.where(kind == Kind.F, 1, np.where((kind == Kind.B) | (kind == Kind.W), -1, 0))
    moves = np.flatnonzero(change)
    if not len(moves):
        return np.zeros((1, len(stages)), dtype=np.int64)
    step = change[moves]
    turns = np.append((step[:-1] > 0) & (step[1:] < 0), True)
    counts = [
        np.cumsum(np.where(stage[moves] == own_stage, step, 0))[turns] for own_stage in stages
    ]
    return sorted_values(np.stack(counts, axis=1), axis=0)


def _maximal(vectors: Ints) -> tuple[Counts, ...]:
    """Drop every vector that another one reaches or exceeds in all chunks."""
    # By falling sum, a vector can only be exceeded by one that comes before it.
    left = vectors[np.argsort(-vectors.sum(axis=1), kind="stable")]
    kept: list[Counts] = []
    while len(left):
        top = left[0]
        kept.append(tuple(top.tolist()))
        left = left[(left > top).any(axis=1)]
    return tuple(sorted(kept, reverse=True))
