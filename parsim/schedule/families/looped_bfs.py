"""Looped breadth-first: all micro-batches of a chunk before the next chunk (arXiv 2211.05953).

Stage chunk*pp + r is on rank r. Two ranks, two chunks, three micro-batches, one slot per action:

    rank 0 | 0F0 0F1 0F2 2F0 2F1 2F2 ... ... 2B2 2B1 2B0 0B2 0B1 0B0
    rank 1 | ... 1F0 1F1 1F2 3F0 3F1 3F2 3B2 3B1 3B0 1B2 1B1 1B0 ...

The bubble is that of GPipe over v, (pp - 1)(F + B)/v, where num_microbatches >= pp; all
micro-batches are in flight on all chunks at once. With sharded parameters a chunk is gathered once
for each pass, and its gradients are reduced while the next chunk computes.
"""

from __future__ import annotations

from parsim.schedule.actions import Action, Kind, require_positive
from parsim.schedule.schedule import Schedule


def looped_bfs(pp: int, num_microbatches: int, v: int) -> Schedule:
    """Build the looped breadth-first schedule with v chunks per rank; v=1 is GPipe backwards.

    The order is PyTorch's ScheduleLoopedBFS: backwards take the last micro-batch first.

    Raises:
        ScheduleError: a size is below 1.
    """
    require_positive(pp=pp, num_microbatches=num_microbatches, v=v)
    return Schedule(
        name="looped_bfs",
        ranks=tuple(_row(range(rank, pp * v, pp), num_microbatches) for rank in range(pp)),
        stage_rank=tuple(stage % pp for stage in range(pp * v)),
        num_microbatches=num_microbatches,
    )


def _row(stages: range, m: int) -> tuple[Action, ...]:
    forward = [Action(stage, Kind.F, mb) for stage in stages for mb in range(m)]
    backward = [Action(s, Kind.B, mb) for s in reversed(stages) for mb in reversed(range(m))]
    return (*forward, *backward)
