"""Chimera: two copies of the model in opposite directions, half of the micro-batches in each.

Stages 0 .. pp-1 go down the ranks with the first half, stages pp .. 2pp-1 up them with the second.
Four ranks, four micro-batches, one slot per action:

    rank 0 | 0F0 0F1 ... 7F2 7B2 7F3 7B3 0B0 ... 0B1
    rank 1 | ... 1F0 6F2 1F1 6F3 6B2 1B0 6B3 1B1 ...
    rank 2 | ... 5F2 2F0 5F3 2F1 2B0 5B2 2B1 5B3 ...
    rank 3 | 4F2 4F3 ... 3F0 3B0 3F1 3B1 4B2 ... 4B3

Forward and backward of one direction fill the gaps of the other. A rank holds two stages, so two
copies of weights, and at most pp micro-batches. Bubble, with B = 2F: 2 (pp - 2) F where
num_microbatches is a multiple of pp, that is (pp - 2)/(3/2 m + pp - 2) of the step; with B = F:
(pp - 2) F. After the step the two copies of each stage add up their gradients.

Source: arXiv 2107.06925; orders by list scheduling, which meet the proven optimum of these forms.
"""

from __future__ import annotations

from parsim.errors import ScheduleError
from parsim.schedule.actions import require_positive
from parsim.schedule.orders.list_order import best_order
from parsim.schedule.orders.weight_fill import EQUAL, ActionTimes
from parsim.schedule.orders.work import Work
from parsim.schedule.schedule import Schedule


def chimera(pp: int, num_microbatches: int, times: ActionTimes = EQUAL) -> Schedule:
    """Build Chimera: two copies of the model in opposite directions, 2/3 of 1F1B's bubble or less.

    Raises:
        ScheduleError: a size is below 1, or pp or num_microbatches is odd.
    """
    require_two_ways("chimera", pp, num_microbatches)
    work = Work(
        stage_rank=both_ways(pp),
        num_microbatches=num_microbatches,
        forward=[times.forward] * (2 * pp),
        backward=[times.backward] * (2 * pp),
        message=times.message,
        limits=[max(pp, 2)] * pp,
        copies=2,
    )
    return Schedule(
        name="chimera",
        ranks=best_order(work).rows,
        stage_rank=both_ways(pp),
        num_microbatches=num_microbatches,
        copies=2,
    )


def both_ways(pp: int) -> tuple[int, ...]:
    """The rank of each stage of two copies: one down the ranks, one up."""
    return (*range(pp), *reversed(range(pp)))


def require_two_ways(name: str, pp: int, num_microbatches: int) -> None:
    """Refuse sizes that cannot be shared out to two directions.

    Raises:
        ScheduleError: a size is below 1 or odd.
    """
    require_positive(pp=pp, num_microbatches=num_microbatches)
    for size, value in (("pp", pp), ("num_microbatches", num_microbatches)):
        if value % 2:
            raise ScheduleError(
                f"schedule {name} runs in two directions, but {size}={value} is odd; allowed: "
                f"2, 4, 6, ..."
            )
