"""Queues that serve exactly alike, of which a run then serves one in place of all.

    push of worker 0 (node 0)    node 0 out | .      node 1 in  node 2 in  node 3 in
    push of worker 9 (node 1)    node 1 out | node 0 in  .      node 2 in  node 3 in
                                              └───── a span of four, with a hole ────┘

Queues that the same turns pass for the same seconds are in the same state all the time: one of them
stands in for all. Many queues in a row of which a turn passes all but few, for the same seconds
each, are a span, which numpy serves at once. Both have the times of queues served one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

Passed = tuple[tuple[int, float], ...]
"""Queues that a turn passes, by number, with the seconds that each serves."""

SPAN_FROM = 12
"""The fewest queues that are faster served at once than one by one."""
HOLES = 3
"""The most queues in a span that a turn does not pass."""


class Span(NamedTuple):
    """The queues from `begin` to before `end`, without `holes` (counted from `begin`), seconds."""

    begin: int
    end: int
    seconds: float
    holes: tuple[int, ...]


class Passages:
    """What turns pass: for each way of passing queues the single ones, and the numbers of spans."""

    def __init__(self, passed: Iterable[Passed]) -> None:
        """Find stand-ins and spans of all the ways in which turns pass queues."""
        self.spans: list[Span] = []
        self._passed = list(dict.fromkeys(passed))
        self.stand_in = _stand_ins(self._passed)
        self._of = {each: self._divided(each) for each in self._passed}

    def of(self, passed: Passed) -> tuple[Passed, tuple[int, ...]]:
        """The single queues of a way, and its spans."""
        return self._of[passed]

    def _divided(self, passed: Passed) -> tuple[Passed, tuple[int, ...]]:
        single, first = [], len(self.spans)
        standing = (each for each in passed if self.stand_in[each[0]] == each[0])
        for numbers, seconds in _alike(standing):
            for run in _runs(numbers):
                if len(run) < SPAN_FROM:
                    single += [(number, seconds) for number in run]
                else:
                    self.spans.append(_span(run, seconds))
        return tuple(single), tuple(range(first, len(self.spans)))


def _stand_ins(ways: list[Passed]) -> dict[int, int]:
    """For each queue the first one that the same turns pass for the same seconds."""
    uses: dict[int, list[tuple[int, float]]] = {}
    for way, passed in enumerate(ways):
        for queue, seconds in passed:
            uses.setdefault(queue, []).append((way, seconds))
    first: dict[tuple[tuple[int, float], ...], int] = {}
    return {queue: first.setdefault(tuple(uses[queue]), queue) for queue in sorted(uses)}


def _alike(passed: Iterable[tuple[int, float]]) -> Iterator[tuple[list[int], float]]:
    """Queues in order of their numbers by the seconds that they serve."""
    by_seconds: dict[float, list[int]] = {}
    for queue, seconds in passed:
        by_seconds.setdefault(seconds, []).append(queue)
    for seconds, numbers in by_seconds.items():
        yield sorted(numbers), seconds


def _runs(numbers: list[int]) -> Iterator[list[int]]:
    """Numbers in runs that lack few between; one that stands twice begins a new run."""
    run, lacking = numbers[:1], 0
    for number in numbers[1:]:
        gap = number - run[-1] - 1
        if gap < 0 or lacking + gap > HOLES:
            yield run
            run, lacking, gap = [], 0, 0
        run.append(number)
        lacking += gap
    yield run


def _span(run: list[int], seconds: float) -> Span:
    begin, passed = run[0], set(run)
    holes = (number - begin for number in range(begin, run[-1]) if number not in passed)
    return Span(begin, run[-1] + 1, seconds, tuple(holes))
