"""The cut of a chain whose busiest rank has the least to do, and of those its largest stage.

A rank with several stages needs the sum of them for each micro-batch. 8 layers and a head worth 4
of them, on 2 ranks with stages 0 and 2, 1 and 3:

    stages alone   3 3 2 head     largest 4    ranks 5 and 7
    ranks first    3 2 3 head     largest 4    ranks 6 and 6

A bound on what ranks take is lowered until a walk over the stages proves that no cut keeps it, then
one on stages. The walk (`cut_walk.py`) is exact, but stops after so many steps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from parsim.cost.step.chain import Chain, Cut
from parsim.cost.step.cuts.cut_walk import CutWalk

CLOSE = 1e-6
"""Share by which seconds of cuts must differ to be told apart: more than sums are rounded by."""

HALVINGS = 6
"""Bounds that are tried between the least and the best cut so far."""


def most_balanced(chain: Chain) -> Cut:
    """The cut whose busiest rank, and then whose largest stage, takes the least.

    Where each rank has one stage, it is of such cuts that whose stages differ least, by squares.
    Leaves out: cuts that a walk's steps do not reach, where there are many kinds of layers.
    """

    def within(busiest: float, largest: float = np.inf) -> Cut | None:
        return CutWalk(chain, busiest, largest).cut()

    cut = _lowered(chain.alone_balanced, chain.busiest, _least_busiest(chain), within)
    busiest, least = chain.busiest(cut), chain.least_largest
    return _lowered(cut, chain.largest, least, lambda largest: within(busiest, largest))


def _lowered(
    cut: Cut, measure: Callable[[Cut], float], least: float, within: Callable[[float], Cut | None]
) -> Cut:
    """The cut that measures least of this one and those that there are within some bound.

    The least that there may be is tried first, then bounds half-way to the best so far: the tighter
    one is, the earlier a walk turns back. At last whatever is less than the best would do.
    """
    bound = least
    for _ in range(HALVINGS):
        if measure(cut) <= least * (1.0 + CLOSE):
            return cut
        better = within(bound)
        cut, least = (cut, bound) if better is None else (better, least)
        bound = 0.5 * (least + measure(cut))
    while (better := within(measure(cut) * (1.0 - CLOSE))) is not None:
        cut = better
    return cut


def _least_busiest(chain: Chain) -> float:
    """Seconds that the busiest rank of no cut takes less than, but for a share of `CLOSE`."""
    most = chain.busiest(chain.alone_balanced)
    least = chain.least_largest
    while least < most * (1.0 - CLOSE):
        bound = 0.5 * (least + most)
        least, most = (least, bound) if CutWalk(chain, bound).may_hold else (bound, most)
    return least
