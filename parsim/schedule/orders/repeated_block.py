"""A block of slots, repeated for each micro-batch, with what can begin earlier moved forward.

    rank 0 | 0F0 ... ... ... 3F0 ... 0F1 3I0 ... ...       the block of V-Half on two ranks, twice
    rank 0 | 0F0 0F1 ... ... 3F0 3I0 3W0 3F1 ...           moved: W in idle slots, no more in flight

F, I and W of a chunk take a slot each, six of them a block. Between the first gradient that comes
home and the last forward that leaves, blocks fit into one another and stay as they are. Source:
arXiv 2405.15362, section 4 and appendix ("squeezing"), for the ratio 1:1:1 alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.weight_fill import Rows

Offsets = tuple[int, int, int, int]
"""Slots of a block on one rank: F of the rank's first chunk, F and I of its second, I of the first;
two of the six are left for W."""

Slots = list[list[int]]
"""Slots of one rank: of each micro-batch for each of the four kinds, or five with W."""

_F_LOW, _F_HIGH, _I_HIGH, _I_LOW, _W = range(5)
_PERIOD = 6


def squeezed(blocks: Sequence[Offsets], m: int) -> Rows:
    """The rows of repeated blocks, one block a rank; no rank ever holds more than they do."""
    slots = [[[_PERIOD * mb + at for mb in range(m)] for at in block] for block in blocks]
    for rank in slots:
        rank.append(sorted(slot for slot, _ in _idle_slots(rank)))
    _move(slots, ramp_up=True)
    slots = [rank[:_W] for rank in slots]
    _move(slots, ramp_up=False)
    return tuple(_row(number, rank, len(slots)) for number, rank in enumerate(slots))


def _idle_slots(rank: Slots) -> list[tuple[int, Action]]:
    """An idle slot for each W behind its I; the second chunk's go first (stages 0 and 1 here)."""
    taken = {at: kind for kind, slots in enumerate(rank[:_W]) for at in slots}
    waiting, done = [0, 0], [0, 0]
    idle: list[tuple[int, Action]] = []
    at, total = 0, 2 * len(rank[_F_LOW])
    while len(idle) < total:
        kind = taken.get(at)
        if kind is None:
            chunk = 1 if waiting[1] else 0
            if waiting[chunk]:
                idle.append((at, Action(chunk, Kind.W, done[chunk])))
                waiting[chunk], done[chunk] = waiting[chunk] - 1, done[chunk] + 1
        elif kind in (_I_HIGH, _I_LOW):
            waiting[kind == _I_HIGH] += 1
        at += 1
    return idle


def _move(slots: list[Slots], *, ramp_up: bool) -> None:
    """Move what can begin earlier into free slots before it, in the order of slots.

    `ramp_up`: also before the first gradient has come home to rank 0, which needs the W in their
    slots. What was moved before it is free of what is behind it, as that comes later.
    """
    kinds = len(slots[0])
    peak = max(max(_in_flight(rank)) for rank in slots)
    taken: list[set[int]] = [set() for _ in slots]
    last, phase = len(slots[0][_F_LOW]) - 1, 0
    items = sorted(
        (at, number, kind, mb)
        for number, rank in enumerate(slots)
        for kind in range(kinds)
        for mb, at in enumerate(rank[kind])
    )
    for at, number, kind, mb in items:
        begins = phase == 0 and (kind, number) == (_I_LOW, 0)
        phase = 1 if begins else phase
        fixed = phase == 1 or (phase == 0 and not ramp_up)
        if phase == 1 and (kind, mb) == (_F_LOW, last):
            phase = 2
        if not fixed:
            rank, earliest = slots[number], _earliest(slots, number, kind, mb)
            free = (s for s in range(earliest, at) if s not in taken[number])
            rank[kind][mb] = next((s for s in free if _fits(rank, kind, mb, s, peak)), at)
        taken[number].add(slots[number][kind][mb])


def _earliest(slots: list[Slots], number: int, kind: int, mb: int) -> int:
    """The slot behind the last thing that must be done before."""
    rank = slots[number]
    before = [rank[kind][mb - 1]] if mb else []
    if kind == _W:
        before.append(sorted(rank[_I_HIGH] + rank[_I_LOW])[mb])
        return max(before) + 1
    if kind != _F_LOW:
        before.append(rank[kind - 1][mb])
    # down the V go F of the first chunk and I of the second, back up the others
    neighbour = number - 1 if kind in (_F_LOW, _I_HIGH) else number + 1
    if 0 <= neighbour < len(slots):
        before.append(slots[neighbour][kind][mb])
    return max(before, default=-1) + 1


def _fits(rank: Slots, kind: int, mb: int, at: int, peak: int) -> bool:
    """Whether the rank stays under the peak.

    A forward holds more, and any move takes the idle slot of a W that has none of its own yet.
    """
    if kind not in (_F_LOW, _F_HIGH) and len(rank) > _W:
        return True
    there, rank[kind][mb] = rank[kind][mb], at
    fits = max(_in_flight(rank)) <= peak
    rank[kind][mb] = there
    return fits


def _in_flight(rank: Slots) -> list[int]:
    """Chunks in flight behind each forward, in their order."""
    weights = rank[_W] if len(rank) > _W else [at for at, _ in _idle_slots(rank)]
    events = sorted([(at, 1) for at in rank[_F_LOW] + rank[_F_HIGH]] + [(at, -1) for at in weights])
    flying, in_flight = 0, []
    for _, change in events:
        flying += change
        in_flight.append(flying)
    return in_flight


def _row(number: int, rank: Slots, pp: int) -> tuple[Action, ...]:
    stages = (number, 2 * pp - 1 - number)
    placed = [(at, Action(stages[weight.stage], *weight[1:])) for at, weight in _idle_slots(rank)]
    what = ((0, Kind.F), (1, Kind.F), (1, Kind.I), (0, Kind.I))
    for (chunk, kind), slots in zip(what, rank, strict=True):
        placed += [(at, Action(stages[chunk], kind, mb)) for mb, at in enumerate(slots)]
    return tuple(action for _, action in sorted(placed))
