"""ZB-V, V-Half and V-Min: two chunks a rank placed as a V, stages s and 2 pp - 1 - s on rank s.

Two ranks, three micro-batches, one slot per action. ZB-V has no gap between a rank's first action
and its last, in 1F1B's memory (arXiv 2401.10241, section 6):

    rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2 ...
    rank 1 | ... 1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2

V-Half and V-Min repeat one block, shifted by the six slots that a micro-batch's F, I and W take on
a rank, and hold half and a third of that memory (arXiv 2405.15362, `slots`). V-Half:

    rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 ... 0I0 3I1 3W1 3F2 3I2 0I1 3W2 0I2 0W0 0W1 0W2
    rank 1 | ... 1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 1F2 2F2 2I1 1I1 2I2 1I2 2W1 2W2 1W1 1W2

A chunk is half of a rank's layers, so that 2 pp chunks in flight are 1F1B's pp micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from parsim.schedule.actions import Action, Kind, require_positive
from parsim.schedule.orders.long_rows import repeating, stretched
from parsim.schedule.orders.repeated_block import Offsets, squeezed
from parsim.schedule.orders.weight_fill import EQUAL, ActionTimes, Rows, best_fill
from parsim.schedule.schedule import Schedule

BLOCKS = 4
"""Blocks a rank of short schedules: the first one ends 6 pp slots after it began, one block each 6,
so that with 4 pp of them a middle repeats that neither end reaches."""


def zb_v(pp: int, num_microbatches: int, times: ActionTimes = EQUAL) -> Schedule:
    """Build ZB-V: 1F1B's memory and, where F, I and W take equally long, no bubble within a rank.

    At the ratio 1:1:1 it is the handcrafted order, that of PyTorch's ScheduleZBVZeroBubble action
    for action; at others F and I keep that order and each W goes where it costs least.

    Raises:
        ScheduleError: a size is below 1.
    """
    require_positive(pp=pp, num_microbatches=num_microbatches)
    if times == EQUAL:
        rows = _all_handcrafted(pp, num_microbatches)
    else:
        rows = stretched(lambda count: _filled(pp, count, times), pp, num_microbatches)
    return _schedule("zb_v", rows, pp, num_microbatches)


def _filled(pp: int, m: int, times: ActionTimes) -> Rows:
    """The handcrafted order of F and I, with each W where it costs least."""
    rows = _all_handcrafted(pp, m)
    order = tuple(tuple(a for a in row if a.kind != Kind.W) for row in rows)
    return best_fill(order, v_placement(pp), times, limit=2 * pp).rows


def v_half(pp: int, num_microbatches: int) -> Schedule:
    """Build V-Half: half of 1F1B's memory, (pp + 2) // 2 micro-batches, and half of its bubble.

    Raises:
        ScheduleError: a size is below 1.
    """
    return _from_blocks("v_half", _half_block, pp, num_microbatches)


def v_min(pp: int, num_microbatches: int) -> Schedule:
    """Build V-Min: a third of 1F1B's memory, (pp + 4) // 3 micro-batches, about 2/3 of its bubble.

    Raises:
        ScheduleError: a size is below 1.
    """
    return _from_blocks("v_min", _min_block, pp, num_microbatches)


def v_placement(pp: int) -> tuple[int, ...]:
    """The rank of each stage: down the ranks and back up."""
    return (*range(pp), *reversed(range(pp)))


def _half_block(rank: int, pp: int) -> Offsets:
    # down at one rank in two slots, so that the way up, one a slot, falls between
    apart = 3 if pp % 2 == 0 else 0
    return (
        2 * rank,
        3 * pp - rank - 2,
        3 * pp + apart + 2 * rank - 1,
        6 * pp + apart - rank - 2,
    )


def _min_block(rank: int, pp: int) -> Offsets:
    # without a wait; where 3 divides pp, F and I would fall into the same slots of the six
    apart = 2 if pp % 3 == 0 else 0
    return (rank, 2 * pp - 1 - rank, 2 * pp + apart + rank, 4 * pp + apart - 1 - rank)


def _from_blocks(name: str, block: Callable[[int, int], Offsets], pp: int, m: int) -> Schedule:
    require_positive(pp=pp, num_microbatches=m)
    blocks = [block(rank, pp) for rank in range(pp)]
    rows = repeating(lambda count: squeezed(blocks, count), BLOCKS * pp, m)
    return _schedule(name, rows, pp, m)


def _all_handcrafted(pp: int, m: int) -> Rows:
    return tuple(_handcrafted(rank, pp, m) for rank in range(pp))


def _handcrafted(rank: int, pp: int, m: int) -> tuple[Action, ...]:
    """A rank's row: built for as many micro-batches as fill the pipeline, then cut to m."""
    return tuple(a for a in _full(rank, pp, max(m, 2 * pp - 1)) if a.microbatch < m)


def _full(rank: int, pp: int, m: int) -> Iterator[Action]:
    """A rank's row of ZB-V: all forwards down and up the V before their backwards."""
    low, high = rank, 2 * pp - 1 - rank
    # warm-up: down the V past this rank, then both ways until the first gradient is here
    ahead, turns, alone = 2 * (pp - rank) - 1, rank, pp - rank
    yield from (Action(low, Kind.F, mb) for mb in range(ahead))
    for mb in range(turns):
        yield Action(high, Kind.F, mb)
        yield Action(low, Kind.F, ahead + mb)
    for mb in range(alone):
        yield Action(high, Kind.F, turns + mb)
        yield from (Action(high, Kind.I, mb), Action(high, Kind.W, mb))
    forward, done = ahead + turns, turns + alone
    for low_done, mb in enumerate(range(done, m)):
        if forward < m:
            yield Action(low, Kind.F, forward)
            forward += 1
        yield from (Action(low, Kind.I, low_done), Action(low, Kind.W, low_done))
        yield Action(high, Kind.F, mb)
        yield from (Action(high, Kind.I, alone + low_done), Action(high, Kind.W, alone + low_done))
    yield from _cool_down(rank, pp, m)


def _cool_down(rank: int, pp: int, m: int) -> Iterator[Action]:
    """The last gradients: those that others wait for first, their weights behind."""
    low, high, steady = rank, 2 * pp - 1 - rank, m - pp
    for mb in range(rank):
        yield Action(low, Kind.I, steady + mb)
        yield Action(high, Kind.I, steady + pp - rank + mb)
    for mb in range(pp - rank):
        yield Action(low, Kind.I, steady + rank + mb)
        yield Action(low, Kind.W, steady + mb)
    yield from (Action(high, Kind.W, mb) for mb in range(m - rank, m))
    yield from (Action(low, Kind.W, mb) for mb in range(m - rank, m))


def _schedule(name: str, rows: Rows, pp: int, m: int) -> Schedule:
    return Schedule(name=name, ranks=rows, stage_rank=v_placement(pp), num_microbatches=m)
