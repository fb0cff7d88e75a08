"""Which loops list orders: Python's, or the same source compiled where that pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from math import inf
from typing import Any, NamedTuple

import numpy as np

from parsim.arrays import Array, Index
from parsim.schedule.orders.listing import end_all, list_turns

WORTH = 250_000
"""Actions after which numba is worth its import: Python's loops took as long for them."""

QUEUES = 62
"""Queues of a rank whose flags fit in one of numba's numbers."""


class Loops(NamedTuple):
    """The two loops, which write into what they are given last, and how columns are given to them.

    `columns` makes of an array what they read.
    """

    list_turns: Callable[..., None]
    end_all: Callable[..., None]
    columns: Callable[[Any], Any]

    def listed(
        self, columns: Sequence[Index | Array], first: Index, message: float
    ) -> tuple[Index, Array]:
        """The turns as they start, and when they end.

        Of (rank, follower, queue, length) of turns and (backs, limits) of ranks.
        """
        turns = len(columns[0])
        started = self.columns(np.zeros(turns, dtype=np.int64))
        ends = self.columns(np.full(turns, inf))
        given = map(self.columns, (*columns, first))
        self.list_turns(*given, message, started, ends)
        return np.asarray(started), np.asarray(ends)

    def ended(self, columns: Sequence[Index | Array], first: Index, message: float) -> Array:
        """When actions end, of (order, bounds, rank, follower, length)."""
        ends = self.columns(np.full(len(columns[-1]), inf))
        self.end_all(*map(self.columns, (*columns, first)), message, ends)
        return np.asarray(ends)


PLAIN = Loops(list_turns, end_all, np.ndarray.tolist)
"""Python's loops."""


class Pace:
    """Which loops a process has: Python's until it has listed so many actions that numba pays."""

    def __init__(self) -> None:
        """Nothing is listed yet."""
        self.listed = 0

    def loops(self, actions: int, queues: int) -> Loops:
        """The loops for so many actions more, with so many queues a rank."""
        self.listed += actions
        compiled = _compiled() if self.listed > WORTH and queues <= QUEUES else None
        return compiled or PLAIN


PACE = Pace()
"""That of this process."""


@cache
def _compiled() -> Loops | None:
    """The loops compiled, where the extra `fast` is installed."""
    if find_spec("numba") is None:
        return None
    from parsim.schedule.orders import numba_listing  # which costs a third of a second

    return Loops(numba_listing.list_turns, numba_listing.end_all, np.asarray)
