"""GPipe: all forwards, then all backwards (Huang et al., arXiv 1811.06965).

Three ranks, three micro-batches, one slot per action:

    rank 0 | 0F0 0F1 0F2 ... ... ... ... 0B0 0B1 0B2
    rank 1 | ... 1F0 1F1 1F2 ... ... 1B0 1B1 1B2 ...
    rank 2 | ... ... 2F0 2F1 2F2 2B0 2B1 2B2 ... ...

Backwards run in the order of the forwards, as in PyTorch's ScheduleGPipe. All micro-batches'
activations are alive at once on every rank.
"""

from __future__ import annotations

from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule


def gpipe(pp: int, num_microbatches: int) -> Schedule:
    """Build the GPipe schedule, stage r on rank r.

    Raises:
        ScheduleError: a size is below 1.
    """

    def row(rank: int) -> list[Action]:
        microbatches, kinds = range(num_microbatches), (Kind.F, Kind.B)
        return [Action(rank, kind, mb) for kind in kinds for mb in microbatches]

    return Schedule.one_stage_each("gpipe", pp, num_microbatches, row)
