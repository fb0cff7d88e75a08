"""Naive model parallelism: one micro-batch at a time, forward through all stages and back.

Three ranks, two micro-batches, one slot per action:

    rank 0 | 0F0 ... ... ... ... 0B0 0F1 ... ... ... ... 0B1
    rank 1 | ... 1F0 ... ... 1B0 ... ... 1F1 ... ... 1B1 ...
    rank 2 | ... ... 2F0 2B0 ... ... ... ... 2F1 2B1 ... ...

Only one rank works at any time, and only one micro-batch's activations are alive.
"""

from __future__ import annotations

from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule


def naive(pp: int, num_microbatches: int) -> Schedule:
    """Build the schedule of naive model parallelism, stage r on rank r.

    Nothing but the order on rank 0 (0B0 before 0F1) keeps micro-batches apart, and that suffices.

    Raises:
        ScheduleError: a size is below 1.
    """

    def row(rank: int) -> list[Action]:
        microbatches, kinds = range(num_microbatches), (Kind.F, Kind.B)
        return [Action(rank, kind, mb) for mb in microbatches for kind in kinds]

    return Schedule.one_stage_each("naive", pp, num_microbatches, row)
