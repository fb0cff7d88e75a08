"""Shortest routes with a fixed choice among equal ones.

A search from both ends at once: in a tree of switches each side sees its own node, its leaf and
the spine, a hundred parts of a hundred thousand, so a route takes a fraction of a millisecond in
any cluster. Works on any graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from parsim.arrays import Array, Index

Neighbours = list[list[tuple[int, int, int]]]
"""For each part its links: (part at the other end, weight, index of the link)."""


def neighbours(
    parts: int, source: Index, target: Index, weights: Sequence[int]
) -> tuple[Neighbours, Neighbours]:
    """Links that leave each part, and those that arrive there; in the links' order."""
    leaving: Neighbours = [[] for _ in range(parts)]
    arriving: Neighbours = [[] for _ in range(parts)]
    links = zip(source.tolist(), target.tolist(), weights, strict=True)
    for link, (start, end, weight) in enumerate(links):
        leaving[start].append((end, weight, link))
        arriving[end].append((start, weight, link))
    return leaving, arriving


def reached_from(start: int, near: Neighbours) -> set[int]:
    """All parts that there is a way to, the first itself among them."""
    seen, open_ = {start}, [start]
    while open_:
        for other, _, _ in near[open_.pop()]:
            if other not in seen:
                seen.add(other)
                open_.append(other)
    return seen


def shortest(
    leaving: Neighbours,
    arriving: Neighbours,
    width: Array,
    start: int,
    end: int,
    seed: int,
) -> tuple[int, ...]:
    """Links of the chosen route between two different parts, in order; empty where there is none.

    `width`, bytes/s of each link, chooses among equal routes, and where it does not, a hash with
    `seed`.
    """
    ahead, back = _Side(leaving, start), _Side(arriving, end)
    best = _meet(ahead, back)
    if best is None:
        return ()
    rest = _rest(ahead, back, arriving, best)
    return _walk(leaving, rest, width, start, end, _mixed(seed, start, end))


@dataclass(slots=True)
class _Side:
    """One end's search: distances so far and the parts to look at next."""

    near: Neighbours
    start: int
    distance: dict[int, int] = field(default_factory=dict)
    queue: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.distance[self.start] = 0
        self.queue.append((0, self.start))

    def step(self, other: _Side, best: int | None) -> int | None:
        """Settle one part; the shortest whole route known after it."""
        reach, part = heappop(self.queue)
        if reach > self.distance[part]:
            return best
        for target, weight, _ in self.near[part]:
            through = reach + weight
            if through < self.distance.get(target, through + 1):
                self.distance[target] = through
                heappush(self.queue, (through, target))
                if target in other.distance:
                    whole = through + other.distance[target]
                    best = whole if best is None else min(best, whole)
        return best


def _meet(ahead: _Side, back: _Side) -> int | None:
    """Length of the shortest routes; both sides know every part in the middle of one.

    Stops when the two next distances sum to the best. On a route of that length the first part
    that `ahead` has not settled lies within reach of what `back` has settled, so that part is
    labelled exactly by both.
    """
    best: int | None = None
    while ahead.queue and back.queue:
        if best is not None and ahead.queue[0][0] + back.queue[0][0] >= best:
            break
        side, other = (ahead, back) if ahead.queue[0] <= back.queue[0] else (back, ahead)
        best = side.step(other, best)
    return best


def _rest(ahead: _Side, back: _Side, arriving: Neighbours, best: int) -> dict[int, int]:
    """What is left to go from each part that may lie on a shortest route."""
    reach = ahead.distance
    meeting = [
        part for part, gone in reach.items() if back.distance.get(part, best + 1) + gone == best
    ]
    rest = dict(back.distance)
    rest.update({part: best - reach[part] for part in meeting})
    seen = set(meeting)
    while meeting:
        part = meeting.pop()
        for before, weight, _ in arriving[part]:
            if before not in seen and reach.get(before, best) + weight == reach[part]:
                seen.add(before)
                rest[before] = best - reach[before]
                meeting.append(before)
    return rest


def _walk(
    leaving: Neighbours,
    rest: dict[int, int],
    width: Array,
    start: int,
    end: int,
    mixed: int,
) -> tuple[int, ...]:
    """From the start, always a link that shortens the rest: the widest way, then the hash."""
    narrowest = {end: float("inf")}
    route: list[int] = []
    part = start
    while part != end:
        ways = []
        for target, weight, link in leaving[part]:
            if rest.get(target) == rest[part] - weight:
                first = float(width[link])
                later = _narrowest(leaving, rest, width, target, narrowest)
                ways.append(((min(first, later), first), target, link))
        widest = max(way[0] for way in ways)
        equal = [way for way in ways if way[0] == widest]
        _, part, link = equal[_mixed(mixed, part, len(route)) % len(equal)]
        route.append(link)
    return tuple(route)


def _narrowest(
    leaving: Neighbours,
    rest: dict[int, int],
    width: Array,
    part: int,
    known: dict[int, float],
) -> float:
    """Width of the narrowest link on the widest of the shortest ways from a part to the end."""
    order, open_ = [part], {part}
    for node in order:
        for target, weight, _ in leaving[node]:
            if rest.get(target) != rest[node] - weight or target in known or target in open_:
                continue
            open_.add(target)
            order.append(target)
    for node in sorted(order, key=lambda node: rest[node]):
        if node not in known:
            known[node] = max(
                min(float(width[link]), known[target])
                for target, weight, link in leaving[node]
                if rest.get(target) == rest[node] - weight
            )
    return known[part]


def _mixed(*parts: int) -> int:
    """A hash of whole numbers that is the same everywhere (the finaliser of splitmix64)."""
    mixed = 0
    for part in parts:
        mixed = (mixed + part + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed
