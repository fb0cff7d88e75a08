"""A schedule drawn by time steps, each action one slot long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from parsim.errors import DeadlockError
from parsim.schedule.actions import Action, Kind

Rows = Sequence[Sequence[Action]]
"""The actions of each rank in their order."""


def staircase(ranks: Rows, depth: int, name: str, beside: Mapping[Action, str]) -> str:
    """The compute actions by time step, a line per rank; dots are idle slots.

    A micro-batch goes through `depth` stages. `beside` is written behind an action.

    Raises:
        DeadlockError: the order of the actions never lets some rank go on.
    """
    lanes = _time_steps(ranks, depth, name)
    words = {a: f"{a}{beside.get(a, '')}" for lane in lanes for a in lane if a}
    width = max(map(len, words.values()))
    label = len(str(len(ranks) - 1))
    return "".join(
        f"rank {rank:{label}d} | "
        + " ".join(f"{words[a] if a else '.' * width:<{width}}" for a in lane).rstrip()
        + "\n"
        for rank, lane in enumerate(lanes)
    )


def _time_steps(ranks: Rows, depth: int, name: str) -> list[list[Action | None]]:
    """What each rank computes in each step of one slot; None is idle."""
    todo = [[a for a in reversed(row) if a.kind <= Kind.W] for row in ranks]
    lanes: list[list[Action | None]] = [[] for _ in todo]
    done: set[tuple[int, bool, int]] = set()  # (stage, is backward, microbatch)

    def ready(action: Action) -> bool:
        stage, kind, microbatch = action
        if kind == Kind.F:
            return stage % depth == 0 or (stage - 1, False, microbatch) in done
        if kind == Kind.W or stage % depth == depth - 1:
            return True
        return (stage + 1, True, microbatch) in done

    while any(todo):
        step = [row.pop() if row and ready(row[-1]) else None for row in todo]
        if not any(step):
            raise DeadlockError(
                f"{name}: no rank can go on; check_schedule names what each waits for"
            )
        done.update((a.stage, a.kind != Kind.F, a.microbatch) for a in step if a)
        for lane, action in zip(lanes, step, strict=True):
            lane.append(action)
    return lanes
