"""1F1B: after a short warm-up, one forward then one backward (PipeDream-flush, arXiv 2006.09503).

Three ranks, four micro-batches, one slot per action:

    rank 0 | 0F0 0F1 0F2 ... ... 0B0 0F3 0B1 ... 0B2 ... 0B3
    rank 1 | ... 1F0 1F1 ... 1B0 1F2 1B1 1F3 1B2 ... 1B3 ...
    rank 2 | ... ... 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 ... ...

Rank r warms up with pp-1-r forwards and so never holds more than pp-r micro-batches.
"""

from __future__ import annotations

from functools import partial

from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule


def one_f_one_b(pp: int, num_microbatches: int) -> Schedule:
    """Build the 1F1B schedule, stage r on rank r.

    PyTorch's Schedule1F1B refuses num_microbatches < pp; here the warm-up is capped instead,
    which leaves the same rule and a legal, if idle, pipeline.

    Raises:
        ScheduleError: a size is below 1.
    """
    row = partial(_row, pp=pp, m=num_microbatches)
    return Schedule.one_stage_each("1f1b", pp, num_microbatches, row)


def _row(rank: int, pp: int, m: int) -> tuple[Action, ...]:
    return one_f_one_b_row(rank, pp - 1 - rank, m)


def one_f_one_b_row(stage: int, warmup: int, m: int) -> tuple[Action, ...]:
    """So many forwards of a stage, then one forward and one backward in turn, then backwards."""
    warmup = min(warmup, m)
    forward = [Action(stage, Kind.F, mb) for mb in range(m)]
    backward = [Action(stage, Kind.B, mb) for mb in range(m)]
    steady = zip(forward[warmup:], backward[: m - warmup], strict=True)
    return (
        *forward[:warmup],
        *(action for pair in steady for action in pair),
        *backward[m - warmup :],
    )
