"""ZB-H1 and ZB-H2: the backward in two, the handcrafted schedules of arXiv 2401.10241, section 2.

Three ranks, four micro-batches, one slot per action. ZB-H1 has the warm-up of 1F1B:

    rank 0 | 0F0 0F1 0F2 ... ... 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
    rank 1 | ... 1F0 1F1 ... 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
    rank 2 | ... ... 2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3

ZB-H2 fills the wait before the first I with more forwards; five micro-batches:

    rank 0 | 0F0 0F1 0F2 0F3 0F4 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4 ... ...
    rank 1 | ... 1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1I3 1W1 1I4 1W2 1W3 1W4 ...
    rank 2 | ... ... 2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2W1 2W2 2W3 2W4

Rank r puts off its weight gradients until r (H2: 2r) more I have run, so that no rank waits for
the ones below it and every rank holds as much as rank 0: pp micro-batches, with H2 2 pp - 1.
"""

from __future__ import annotations

from functools import partial

from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule


def zb_h1(pp: int, num_microbatches: int) -> Schedule:
    """Build ZB-H1, 1F1B's memory and a third of its bubble: (pp - 1)(F + I - W).

    Raises:
        ScheduleError: a size is below 1.
    """
    row = partial(_row, pp=pp, m=num_microbatches, depth=1)
    return Schedule.one_stage_each("zb_h1", pp, num_microbatches, row)


def zb_h2(pp: int, num_microbatches: int) -> Schedule:
    """Build ZB-H2, nearly twice 1F1B's memory; a rank's own bubble is (pp - 1)(F + I - 2W).

    That is 0 where F, I and W take equally long: every rank works without a gap from its first
    action to its last. The ranks begin one after another, so that the whole is longer than each.

    Raises:
        ScheduleError: a size is below 1.
    """
    row = partial(_row, pp=pp, m=num_microbatches, depth=2)
    return Schedule.one_stage_each("zb_h2", pp, num_microbatches, row)


def _row(rank: int, pp: int, m: int, depth: int) -> tuple[Action, ...]:
    # H2 warms up with 2 (pp - rank) - 1 forwards: down the pipeline and its gradient's way up
    warmup, late = min(depth * (pp - rank) - depth + 1, m), depth * rank
    row = [Action(rank, Kind.F, mb) for mb in range(warmup)]
    for mb in range(m):
        row.append(Action(rank, Kind.I, mb))
        if mb >= late:
            row.append(Action(rank, Kind.W, mb - late))
        if warmup + mb < m:
            row.append(Action(rank, Kind.F, warmup + mb))
    row += [Action(rank, Kind.W, mb) for mb in range(max(m - late, 0), m)]
    return tuple(row)
