"""Which communication the compute stream waited for, and for how long: arithmetic of intervals.

    compute    |////////|         |///|      waits for       |////|
    bucket 0      |--------|                 exposed: from the wait's start to the bucket's end
    bucket 1         |-----------|           exposed: from bucket 0's end to the wait's end

No moment of a wait is counted twice. All times are seconds on one clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

Interval = tuple[float, float]


class Transfer(NamedTuple):
    """One collective or message of this rank, from when it really runs until its end.

    `stream` is `tp`, `ep`, `dp` or `offload`; `operation` is what was run, such as `all_reduce`.
    `exposed` are the parts that the compute stream waited for. `stage` and `microbatch` are whose
    activations it carries, where it knows.
    """

    stream: str
    operation: str
    start: float
    end: float
    exposed: tuple[Interval, ...] = ()
    stage: int = -1
    microbatch: int = -1

    def waited(self, until: float = math.inf) -> float:
        """Seconds that the compute stream waited for it up to a moment."""
        return sum(max(0.0, min(end, until) - start) for start, end in self.exposed)


def attribute(
    transfers: Iterable[Transfer], waits: Iterable[Interval], *, extend: bool
) -> list[Transfer]:
    """Give each moment of the waits to the transfer that ran then, the one that ends first.

    With `extend` the transfers that a wait is for reach over the whole of it: from its begin, as
    they were queued, to its end, as they are not over before the waiting thread is awake.
    """
    attributed = sorted(transfers, key=lambda transfer: transfer.start)
    running: list[int] = []
    coming = 0
    for begin, end in merged(waits):
        while coming < len(attributed) and attributed[coming].start < end:
            running.append(coming)
            coming += 1
        running = [i for i in running if attributed[i].end > begin]
        if extend and running:
            first = min(running, key=lambda i: attributed[i].start)
            attributed[first] = attributed[first]._replace(
                start=min(attributed[first].start, begin)
            )
            last = max(running, key=lambda i: attributed[i].end)
            attributed[last] = attributed[last]._replace(end=max(attributed[last].end, end))
        _share(attributed, running, begin, end)
    return attributed


def _share(attributed: list[Transfer], running: Sequence[int], begin: float, end: float) -> None:
    """Divide one wait among the transfers that run meanwhile."""
    times = [time for i in running for time in (attributed[i].start, attributed[i].end)]
    edges = sorted({begin, end, *(time for time in times if begin < time < end)})
    for start, stop in pairwise(edges):
        present = [i for i in running if attributed[i].start <= start and stop <= attributed[i].end]
        if present:
            first = min(present, key=lambda i: attributed[i].end)
            attributed[first] = attributed[first]._replace(
                exposed=(*attributed[first].exposed, (start, stop))
            )


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Join intervals into those of the same moments that neither overlap nor touch, in order."""
    joined: list[Interval] = []
    for start, stop in sorted(intervals):
        if joined and start <= joined[-1][1]:
            begin, end = joined[-1]
            joined[-1] = (begin, max(end, stop))
        else:
            joined.append((start, stop))
    return joined


def gaps(busy: Iterable[Interval], within: Interval) -> Iterator[Interval]:
    """The moments of `within` that are in none of the intervals."""
    free = within[0]
    for start, end in merged(busy):
        if start > within[1]:
            break
        if free < start:
            yield free, start
        free = max(free, end)
    if free < within[1]:
        yield free, within[1]


def overlap(intervals: Iterable[Interval], start: float, end: float) -> float:
    """Seconds that disjoint intervals have in common with another one."""
    return sum(max(0.0, min(end, stop) - max(start, begin)) for begin, stop in intervals)


def exposed_of(transfers: Sequence[Transfer]) -> list[Interval]:
    """All that is exposed, in order; the parts are disjoint as `attribute` made them."""
    return sorted(part for transfer in transfers for part in transfer.exposed)
