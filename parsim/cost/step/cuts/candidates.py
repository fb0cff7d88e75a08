"""Cuts of a model into stages that are worth trying, because seconds are balanced.

    8 layers and a head worth 2.4 of them on 4 stages     even      2 2 2 2   slowest 4.4
                                                          balanced  3 3 2 0   slowest 3

Which of them a plan is fastest with, its step says.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from parsim.cost.step.chain import Chain, Cut
from parsim.cost.step.cuts.balance import most_balanced
from parsim.plan import Plan

CUTS_KEPT = 1 << 15
"""Pipelines whose cuts are remembered: settings of a search ask for the same ones again."""

BACKWARD = 2.0
"""Backward over forward: two products for each of the forward's."""

Ranks = tuple[int, ...]
"""The rank of each stage, those of a second copy of the model behind the first's."""


class PlacedStages(NamedTuple):
    """Stages to cut a plan's layers into: how many a copy of the model has, and all their ranks.

    `weights` of stages are those of `short_weights`, or none.
    """

    stages: int
    ranks: Ranks
    weights: tuple[float, ...] = ()


def short_weights(plan: Plan) -> tuple[float, ...]:
    """How much each stage of 1F1B counts where micro-batches are no more than stages, else ().

    With x_s of the layers on stage s the first gradient is back on it after F + B of the whole
    chain; m - 1 backwards are left, and the forwards that are not in its warm-up of p - 1 - s:

        step >= F + B + x_s ((m - 1) B + max(0, m - p + s) F)

    Source: the schedule's order; on 2 to 4 stages it is met within 4 % (B = 2 F, no messages).
    """
    p, m = plan.pp, plan.num_microbatches
    if plan.schedule != "1f1b" or plan.actions is not None or not 1 < m <= p:
        return ()
    return tuple((m - 1) * BACKWARD + max(0, m - p + stage) for stage in range(p))


def balanced_cuts(seconds: bytes, placed: PlacedStages) -> tuple[Cut, ...]:
    """Find the cuts into items that make a pipeline's busiest rank fastest.

    First comes the cut that looks at a rank's stages together (`balance.py`), then the one that
    looks at each alone, if its largest stage is smaller or its stages are more alike: where few
    micro-batches pass between two chunks of a rank, they wait for stages. Last comes the one for
    few micro-batches under 1F1B. Embedding and head may be stages by themselves. Leaves out:
    messages, memory, what is computed again; whether a plan is faster with a cut, its step says.
    """
    cuts = _by_ranks(seconds, placed.stages, placed.ranks)
    if placed.weights:
        chain = Chain.on(np.frombuffer(seconds), placed.ranks, placed.stages)
        cuts = (*cuts, chain.balanced(placed.weights))
    return cuts


@lru_cache(maxsize=CUTS_KEPT)
def _by_ranks(seconds: bytes, stages: int, ranks: Ranks) -> tuple[Cut, ...]:
    """The cut that balances ranks, and that which balances stages where these are more alike."""
    chain = Chain.on(np.frombuffer(seconds), ranks, stages)
    together, alone = most_balanced(chain), chain.alone_balanced
    smoother = chain.unevenness(alone) < chain.unevenness(together)
    return (together, alone) if smoother else (together,)


def cut_words(cut: Cut) -> str:
    """A cut in a few characters: 9-9-8-6, and 7-8x14-7 where neighbours are alike."""
    runs = [(size, len(list(alike))) for size, alike in groupby(cut)]
    return "-".join(
        f"{size}x{count}" if count > 2 else "-".join([str(size)] * count) for size, count in runs
    )
