"""Actions: what a pipeline rank does with one stage and micro-batch.

Names, meaning, text and CSV are those of `torch.distributed.pipelining`, so that a schedule
written here can be loaded there and the other way round.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from parsim.errors import ScheduleError, shown


class Kind(IntEnum):
    """What an action does; the order matters: compute first, then messages, then per stage."""

    F = 0  # forward
    B = 1  # full backward: gradient for inputs and for weights
    I = 2  # noqa: E741  gradient for inputs only (PyTorch's name)
    W = 3  # gradient for weights only
    SEND_F = 4
    RECV_F = 5
    SEND_B = 6
    RECV_B = 7
    UNSHARD = 8
    RESHARD = 9
    REDUCE_GRAD = 10

    @property
    def is_compute(self) -> bool:
        """True for F, B, I and W."""
        return self <= Kind.W

    @property
    def has_microbatch(self) -> bool:
        """False for the actions that concern a whole stage: UNSHARD, RESHARD, REDUCE_GRAD."""
        return self < Kind.UNSHARD


_NAMES = tuple(kind.name for kind in Kind)
_PATTERN = re.compile(r"([0-9]{1,9})([A-Z](?:[A-Z_]*[A-Z])?)([0-9]{1,9})?", re.ASCII)


class Action(NamedTuple):
    """One action of one stage; `microbatch` is -1 for the kinds that concern the whole stage."""

    stage: int
    kind: Kind
    microbatch: int = -1

    def __str__(self) -> str:
        """PyTorch's text: `2F0`, `1SEND_F3`, `1UNSHARD`."""
        suffix = self.microbatch if self.microbatch >= 0 else ""
        return f"{self.stage}{_NAMES[self.kind]}{suffix}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Read PyTorch's text, the inverse of `str`.

        Raises:
            ScheduleError: the text is no action, or lacks or has a microbatch against its kind.
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None or match[2] not in Kind.__members__:
            raise ScheduleError(
                f"'{shown(text.strip())}' is not an action; expected "
                f"<stage><kind><microbatch> such as 2F0, 1SEND_F3, or <stage><kind> such as "
                f"1UNSHARD; kinds: {', '.join(_NAMES)}"
            )
        kind = Kind[match[2]]
        if kind.has_microbatch and match[3] is None:
            raise ScheduleError(
                f"action '{shown(text.strip())}' lacks its microbatch; write it behind the "
                f"kind, as in {match[1]}{kind.name}0"
            )
        if not kind.has_microbatch and match[3] is not None:
            raise ScheduleError(
                f"action '{shown(text.strip())}' has a microbatch, but {kind.name} concerns the "
                f"whole stage; write {match[1]}{kind.name}"
            )
        return cls(int(match[1]), kind, -1 if match[3] is None else int(match[3]))


def require_positive(**sizes: int) -> None:
    """Refuse sizes below 1.

    Raises:
        ScheduleError: naming the size, its value and what is allowed.
    """
    for name, size in sizes.items():
        if size < 1:
            raise ScheduleError(f"{name}={size} is too small; allowed: 1, 2, 3, ...")


class Move(NamedTuple):
    """Micro-batches whose activations leave and come back beside an action; -1 for none.

    The order is 1F1B's with a limit of micro-batches that a rank keeps; see `families/bpipe.py`.
    """

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
