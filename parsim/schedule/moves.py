"""Micro-batches whose activations leave a rank for its partner and come back, action by action.

The order is 1F1B's with a limit of micro-batches that a rank keeps; see `families/bpipe.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from parsim.schedule.actions import Action, Kind


class Move(NamedTuple):
    """Micro-batches whose activations leave and come back beside an action; -1 for none."""

    evicted: int = -1
    loaded: int = -1

    def __str__(self) -> str:
        """What is written behind its action in a staircase."""
        out = f">{self.evicted}" if self.evicted >= 0 else ""
        return out + (f"<{self.loaded}" if self.loaded >= 0 else "")


def moves_of(pp: int, m: int, limit: int) -> dict[Action, Move]:
    """What goes to the partner and comes back beside each action.

    What B 0 loads must be there when it begins: ranks wait for it anyway, for its gradient.
    """
    every: dict[Action, Move] = {}
    for rank in range(pp):
        every |= _of_rank(rank, pp, m, limit)
    return every


def _of_rank(rank: int, pp: int, m: int, limit: int) -> dict[Action, Move]:
    n = min(m, pp - rank)
    if n <= limit:
        return {}
    warm = {Action(rank, Kind.F, k + 1): Move(evicted=k) for k in range(limit - 2, n - 1)}
    loads = {Action(rank, Kind.F, j): j - n + limit - 1 for j in range(n, m)}
    loads |= {Action(rank, Kind.B, i): i + limit - 2 for i in range(m - n + 1, m - limit + 1)}
    loads[Action(rank, Kind.B, 0)] = limit - 2
    evictions = {Action(rank, Kind.B, j - n + 1): j for j in range(n - 1, m - 1)}
    steady = {
        action: Move(evicted=evictions.get(action, -1), loaded=loads.get(action, -1))
        for action in {**loads, **evictions}
    }
    return warm | steady


def guests_of(pp: int, m: int, limit: int) -> tuple[int, ...]:
    """The most micro-batches of its partner's stage that each rank holds."""
    flying = [min(m, pp - rank) for rank in range(pp)]
    return tuple(n - limit + 1 if n > limit else 0 for n in reversed(flying))
