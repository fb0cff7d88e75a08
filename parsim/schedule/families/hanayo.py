"""Hanayo: the model goes up and down the ranks in waves, v = 2 x waves chunks a rank.

One wave is a V: stages 0 .. pp-1 down the ranks, pp .. 2pp-1 back up; the next wave follows. Two
ranks, one wave, two micro-batches, one slot per action:

    rank 0 | 0F0 0F1 ... 3F0 3B0 3F1 3B1 0B0 ... 0B1
    rank 1 | ... 1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1 ...

A rank holds at most pp micro-batches, as in 1F1B. The bubble is (pp - 1) B/waves, B being that of a
rank's whole share, where num_microbatches = pp: the least that any order reaches (proven for pp 4,
6 and 8, B = F, 2F and 3F). With more micro-batches it stays so for one wave. For two and more no
block of pp micro-batches that is so short can follow itself without a gap (pp 2, 3 and 4), but an
order of all of them together may be as short (pp 2 with 4 and 6 micro-batches, pp 3 with 6, pp 4
with 8). What is listed is close to that: with F + B = 3 a micro-batch, eight ranks and two waves
idle for 7 units with 8 micro-batches, 7.75 with 16 and 9.5 with 32 (1F1B for 21).

Source: arXiv 2308.15762; orders by list scheduling from both ends; what is proven and that orders
as short exist, by a constraint solver (CP-SAT).
"""

from __future__ import annotations

from parsim.errors import ScheduleError
from parsim.schedule.actions import require_positive
from parsim.schedule.orders.list_order import best_order
from parsim.schedule.orders.weight_fill import EQUAL, ActionTimes
from parsim.schedule.orders.work import Work
from parsim.schedule.schedule import Schedule

TURNED = 20_000
"""Actions over which orders are turned round: some hundredths of a second."""


def hanayo(pp: int, num_microbatches: int, v: int, times: ActionTimes = EQUAL) -> Schedule:
    """Build Hanayo with v/2 waves: 1F1B's memory, its bubble divided by more than the waves.

    Raises:
        ScheduleError: a size is below 1, or v is odd.
    """
    require_positive(pp=pp, num_microbatches=num_microbatches, v=v)
    if v % 2:
        raise ScheduleError(
            f"hanayo has two chunks per rank and wave, but v={v}; allowed: 2, 4, 6, ..."
        )
    placement = waves(pp, v)
    work = Work(
        stage_rank=placement,
        num_microbatches=num_microbatches,
        forward=[times.forward] * (pp * v),
        backward=[times.backward] * (pp * v),
        message=times.message,
        limits=[pp * v] * pp,
    )
    busy = num_microbatches * v * (times.forward + times.backward)
    enough = busy + 2 * (pp - 1) * times.backward
    return Schedule(
        name="hanayo",
        ranks=best_order(work, TURNED, enough).rows,
        stage_rank=placement,
        num_microbatches=num_microbatches,
    )


def waves(pp: int, v: int) -> tuple[int, ...]:
    """The rank of each stage: down the ranks and back up, v/2 times."""
    return (*range(pp), *reversed(range(pp))) * (v // 2)
