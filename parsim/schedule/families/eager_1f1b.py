"""Eager 1F1B: twice the warm-up of 1F1B, so that messages travel while ranks compute.

Three ranks, five micro-batches, one slot per action:

    rank 0 | 0F0 0F1 0F2 0F3 0F4 0B0 ... 0B1 ... 0B2 ... 0B3 ... 0B4
    rank 1 | ... 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 ... 1B3 ... 1B4 ...
    rank 2 | ... ... 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4 ... ...

Rank r warms up with 2 (pp - 1 - r) forwards and holds at most 2 (pp - r) - 1 micro-batches. Without
messages it takes as long as 1F1B; a message of c that no computation hides costs 1F1B
2c [(pp - 1) m/pp + pp - 2], and this one 2c (pp - 1) alone, for c no longer than F.

Source: arXiv 2211.05322, section 4.2.
"""

from __future__ import annotations

from functools import partial

from parsim.schedule.actions import Action
from parsim.schedule.families.one_f_one_b import one_f_one_b_row
from parsim.schedule.schedule import Schedule


def eager_1f1b(pp: int, num_microbatches: int) -> Schedule:
    """Build the eager 1F1B schedule, stage r on rank r: messages hidden, twice the activations.

    Raises:
        ScheduleError: a size is below 1.
    """
    row = partial(_row, pp=pp, m=num_microbatches)
    return Schedule.one_stage_each("eager_1f1b", pp, num_microbatches, row)


def _row(rank: int, pp: int, m: int) -> tuple[Action, ...]:
    return one_f_one_b_row(rank, 2 * (pp - 1 - rank), m)
