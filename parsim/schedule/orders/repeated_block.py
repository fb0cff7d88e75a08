"""A block of slots that is repeated for each micro-batch, and what moves into free slots.

    rank 0 | 0F0 ... ... ... 3F0 ... 0F1 3I0 ... ...       the block of V-Half on two ranks, twice
    rank 0 | 0F0 0F1 ... ... 3F0 3I0 3W0 3F1 ...           moved: W in idle slots, no more in flight

F, I and W of a chunk take a slot each, six of them a block. Between the first gradient that comes
home and the last forward that leaves, blocks fit into one another and stay as they are. Source:
arXiv 2405.15362, section 4 and appendix ("squeezing"), for the ratio 1:1:1 alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from parsim.schedule.actions import Action, Kind
from parsim.schedule.orders.weight_fill import Rows

Offsets = tuple[int, int, int, int]
"""Slots of a block on one rank: F of the rank's first chunk, F and I of its second, I of the first;
two of the six are left for W."""

Slots = list[list[int]]
"""Slots of one rank: of each micro-batch for each of the four kinds, or five with W."""

Placed = tuple[int, Action]
"""A slot and what is in it."""

_F_LOW, _F_HIGH, _I_HIGH, _I_LOW, _W = range(5)
_RAMP_UP, _MIDDLE, _RAMP_DOWN = range(3)
_PERIOD = 6


def squeezed(blocks: Sequence[Offsets], m: int) -> Rows:
    """The rows of repeated blocks, one block a rank; no rank ever holds more than they do."""
    slots = [[[_PERIOD * mb + at for mb in range(m)] for at in block] for block in blocks]
    for rank in slots:
        rank.append([slot for slot, _ in _idle_slots(rank)])
    _move(slots, ramp_up=True)
    slots = [rank[:_W] for rank in slots]
    _move(slots, ramp_up=False)
    return tuple(_row(number, rank, len(slots)) for number, rank in enumerate(slots))


def _idle_slots(rank: Slots, first: int = 0, before: Sequence[Placed] = ()) -> list[Placed]:
    """An idle slot for each W behind its I; the second chunk's go first (stages 0 and 1 here).

    Those from slot `first` on, where the W of `before` have theirs.
    """
    later = [slots[bisect_left(slots, first) :] for slots in rank[:_W]]
    taken = {at: kind for kind, slots in enumerate(later) for at in slots}
    high = next((action.microbatch + 1 for _, action in reversed(before) if action.stage), 0)
    done = [len(before) - high, high]
    waiting = [bisect_left(rank[_I_LOW], first) - done[0], bisect_left(rank[_I_HIGH], first) - high]
    idle: list[Placed] = []
    at, total = first, 2 * len(rank[_F_LOW]) - len(before)
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
    idle = [[] if ramp_up else _idle_slots(rank) for rank in slots]
    peak = max(
        max(_in_flight(rank, rank[_W] if ramp_up else [at for at, _ in placed]))
        for rank, placed in zip(slots, idle, strict=True)
    )
    taken: list[set[int]] = [set() for _ in slots]
    for phase, at, number, kind, mb in _with_phases(slots):
        if phase == _RAMP_DOWN or (phase == _RAMP_UP and ramp_up):
            earliest = _earliest(slots, number, kind, mb)
            free = [slot for slot in range(earliest, at) if slot not in taken[number]]
            _move_to_one_of(free, slots[number], idle[number], kind, mb, peak)
        taken[number].add(slots[number][kind][mb])


def _with_phases(slots: list[Slots]) -> Iterator[tuple[int, int, int, int, int]]:
    """Actions by slot, as they are before any moves: phase, slot, rank, kind and micro-batch.

    The middle is from the first gradient that comes home to rank 0 to the last forward that leaves.
    """
    last, phase = len(slots[0][_F_LOW]) - 1, _RAMP_UP
    items = sorted(
        (at, number, kind, mb)
        for number, rank in enumerate(slots)
        for kind, places in enumerate(rank)
        for mb, at in enumerate(places)
    )
    for at, number, kind, mb in items:
        if phase == _RAMP_UP and (kind, number) == (_I_LOW, 0):
            phase = _MIDDLE
        yield phase, at, number, kind, mb
        if phase == _MIDDLE and (kind, mb) == (_F_LOW, last):
            phase = _RAMP_DOWN


def _move_to_one_of(
    free: Sequence[int], rank: Slots, placed: list[Placed], kind: int, mb: int, peak: int
) -> None:
    """Move an action to the first slot in which the rank stays under the peak, if there is any."""
    moved = next((slot for slot in free if _fits(rank, placed, kind, mb, slot, peak)), None)
    if moved is None:
        return
    rank[kind][mb] = moved
    if len(rank) == _W:  # W without slots of their own are in idle ones
        first = bisect_left(placed, (moved,))
        placed[first:] = _idle_slots(rank, moved, placed[:first])


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


def _fits(rank: Slots, placed: list[Placed], kind: int, mb: int, at: int, peak: int) -> bool:
    """Whether the rank stays under the peak with an action at an earlier slot.

    A forward holds more, and any move takes the idle slot of a W that has none of its own yet;
    `placed` are those W as they are. Nothing changes before that slot, nor, where W have slots of
    their own, behind the slot that the action leaves.
    """
    own_slots = len(rank) > _W
    if kind not in (_F_LOW, _F_HIGH) and own_slots:
        return True
    there, rank[kind][mb] = rank[kind][mb], at
    if own_slots:
        in_flight = _in_flight(rank, rank[_W], at, there + 1)
    else:
        before = placed[: bisect_left(placed, (at,))]
        idle = [slot for slot, _ in _idle_slots(rank, at, before)]
        in_flight = _in_flight(rank, idle, at, ended=len(before))
    rank[kind][mb] = there
    return max(in_flight, default=0) <= peak


def _in_flight(
    rank: Slots, weights: Sequence[int], first: int = 0, until: int | None = None, ended: int = 0
) -> list[int]:
    """Chunks in flight behind each forward and W of some slots, in their order.

    `weights` are the slots of W, without those of `ended` ones.
    """
    flying, events = -ended, list[tuple[int, int]]()
    for slots, change in ((rank[_F_LOW], 1), (rank[_F_HIGH], 1), (weights, -1)):
        start = bisect_left(slots, first)
        end = None if until is None else bisect_left(slots, until)
        flying += change * start
        events += [(at, change) for at in slots[start:end]]
    return list(accumulate((change for _, change in sorted(events)), initial=flying))[1:]


def _row(number: int, rank: Slots, pp: int) -> tuple[Action, ...]:
    stages = (number, 2 * pp - 1 - number)
    placed = [(at, Action(stages[weight.stage], *weight[1:])) for at, weight in _idle_slots(rank)]
    what = ((0, Kind.F), (1, Kind.F), (1, Kind.I), (0, Kind.I))
    for (chunk, kind), slots in zip(what, rank, strict=True):
        placed += [(at, Action(stages[chunk], kind, mb)) for mb, at in enumerate(slots)]
    return tuple(action for _, action in sorted(placed))
