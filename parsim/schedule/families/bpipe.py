"""BPipe: 1F1B in which ranks that hold many micro-batches keep some of them on ranks that hold few.

Rank r sends activations to rank pp-1-r ("evict", > and the micro-batch) beside one action and gets
them back ("load", <) beside a later one. Four ranks, eight micro-batches, one slot per action:

    rank 0 | 0F0 0F1 0F2>1 0F3>2 ... ... ... 0B0>3<1 0F4 0B1>4<.. ...

No rank holds more than (pp + 2)/2 micro-batches, of its own and of its partner together, where 1F1B
holds pp on the first rank. With n = min(m, pp - r) in flight and L = ceil((pp + 2)/2), ranks with
n > L keep L themselves and up to n - L + 1 on their partner, one of them on its way. That one has
r + 1 of its own: pp + 2 - L together, which is L for an even pp.

    warm-up     F k+1 evicts k, for k from L - 2 on, and B 0 waits for L - 2 to be back
    then        F j loads j - n + L - 1, B j-n+1 evicts j, if forwards are left
    cool-down   B i loads i + L - 2

A load is needed L - 2 backwards later. Pairs side by side on one node send over its links alone;
parsim leaves ranks in their order.

Source: Kim et al. 2023 (ICML, proceedings.mlr.press/v202/kim23l.html); re-examined in Huang et al.
2024 (arXiv:2401.02088), where it gains nothing on Llama with flash attention.
"""

from __future__ import annotations

from dataclasses import replace

from parsim.schedule.families.one_f_one_b import one_f_one_b
from parsim.schedule.schedule import Schedule


def bpipe(pp: int, num_microbatches: int) -> Schedule:
    """Build BPipe: 1F1B's order, activations shared out between the ends of the pipeline.

    Raises:
        ScheduleError: a size is below 1.
    """
    plain = one_f_one_b(pp, num_microbatches)
    return replace(plain, name="bpipe", limit=most_kept(pp))


def most_kept(pp: int) -> int:
    """Micro-batches that a rank holds at the most, its partner's among them: ceil((pp + 2)/2)."""
    return (pp + 3) // 2
