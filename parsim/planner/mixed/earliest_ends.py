"""When the ranks of a placed pipeline can be done at the earliest, without its actions.

A pipeline rank r whose first stage is f is busy for its work, cannot begin before the first
micro-batch has passed the stages before f, and its last gradient has to pass them again:

    clock[r] >= lead(f) + m x (F + B of its stages);   lead(f) = sum of F before f
    clock[q] >= clock[r] + B of the stages from f - 1 down to rank q's

The second line is for whole backwards alone: behind its last I a rank may still have W to do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from parsim.arrays import Array, Ints


def earliest_ends(
    forward: Array,
    backward: Array,
    rank_of: Sequence[int],
    microbatches: Ints,
    *,
    whole: bool,
) -> Array:
    """When a pipeline's ranks can have run all their actions at the earliest, (p, C).

    Args:
        forward: seconds of a stage's forward, (S, C).
        backward: of its backward, or of its I and W together, (S, C).
        rank_of: the rank of each stage.
        microbatches: of each case, (C,).
        whole: whether backwards are whole, and a rank's first stage is the last that it completes.
    """
    lead = np.cumsum(forward, axis=0) - forward
    ranks = np.array(rank_of)
    first = [int(np.flatnonzero(ranks == rank)[0]) for rank in range(max(rank_of) + 1)]
    clock = lead[first]
    np.add.at(clock, ranks, microbatches * (forward + backward))
    for rank in sorted(range(len(first)), key=lambda r: -first[r]) if whole else ():
        stage = first[rank]
        if stage:
            below = rank_of[stage - 1]
            clock[below] = np.maximum(clock[below], clock[rank] + backward[stage - 1])
    return clock
