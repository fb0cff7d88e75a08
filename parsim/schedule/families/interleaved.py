"""Interleaved 1F1B: v chunks per rank, which divides the bubble by v (arXiv 2104.04473).

Stage chunk*pp + r is on rank r. Two ranks, four micro-batches, two chunks, one slot per action:

    rank 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 ... 2B2 ... 2B3 0B2 0B3
    rank 1 | ... 1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3 ...

Micro-batches go in rounds: one round passes through chunk 0, then through chunk 1, and so on.
"""

from __future__ import annotations

from itertools import count

from parsim.errors import ScheduleError
from parsim.schedule.actions import Action, Kind, require_positive
from parsim.schedule.schedule import Schedule


def interleaved_1f1b(pp: int, num_microbatches: int, v: int) -> Schedule:
    """Build the interleaved 1F1B schedule with v chunks per rank.

    Where pp divides num_microbatches this is Megatron-LM's schedule. Elsewhere it follows
    PyTorch's ScheduleInterleaved1F1B: max(1, num_microbatches // pp) rounds of equal length.

    Raises:
        ScheduleError: a size is below 1, v is 1, or the rounds would be of unequal length.
    """
    require_positive(pp=pp, num_microbatches=num_microbatches, v=v)
    if v == 1:
        raise ScheduleError(
            "interleaved_1f1b needs at least two chunks per rank, but v=1; "
            "allowed: 2, 3, 4, ...; for one chunk use the schedule 1f1b"
        )
    per_round = _round_length(pp, num_microbatches)
    return Schedule(
        name="interleaved_1f1b",
        ranks=tuple(_row(rank, pp, num_microbatches, v, per_round) for rank in range(pp)),
        stage_rank=tuple(stage % pp for stage in range(pp * v)),
        num_microbatches=num_microbatches,
    )


def _row(rank: int, pp: int, m: int, v: int, per_round: int) -> tuple[Action, ...]:
    # A warm-up of (v-1) whole rounds brings the first micro-batch into the last chunk; two more
    # forwards per rank below this one cover the way down the pipeline and the gradient's way up.
    warmup = min((v - 1) * per_round + 2 * (pp - 1 - rank), m * v)
    stages = range(rank, pp * v, pp)
    rounds = [range(first, first + per_round) for first in range(0, m, per_round)]
    forward = [Action(s, Kind.F, mb) for mbs in rounds for s in stages for mb in mbs]
    backward = [Action(s, Kind.B, mb) for mbs in rounds for s in reversed(stages) for mb in mbs]
    steady = zip(forward[warmup:], backward[: m * v - warmup], strict=True)
    return (
        *forward[:warmup],
        *(action for pair in steady for action in pair),
        *backward[m * v - warmup :],
    )


def _rounds(pp: int, num_microbatches: int) -> int:
    return max(1, num_microbatches // pp)


def _round_length(pp: int, num_microbatches: int) -> int:
    rounds = _rounds(pp, num_microbatches)
    if num_microbatches % rounds == 0:
        return num_microbatches // rounds
    below = next(m for m in count(num_microbatches, -1) if m % _rounds(pp, m) == 0)
    above = next(m for m in count(num_microbatches) if m % _rounds(pp, m) == 0)
    raise ScheduleError(
        f"num_microbatches={num_microbatches} is not a multiple of its {rounds} rounds "
        f"(num_microbatches // pp with pp={pp}), which interleaved_1f1b needs; "
        f"nearest allowed: {below}, {above}; every multiple of pp is"
    )
