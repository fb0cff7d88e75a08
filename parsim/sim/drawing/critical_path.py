"""The chain of actions that a simulated plan's pipeline phase waits for."""

from __future__ import annotations

from collections.abc import Sequence

from parsim.schedule import Action
from parsim.sim.drawing.placed_actions import Placed


def critical_path(placed: Sequence[Placed]) -> list[Placed]:
    """Walk back from the last action: whichever predecessor ends when this one starts."""
    by_action = {item.action: item for item in placed}
    before: dict[Action, Placed] = {}
    last: dict[int, Placed] = {}
    for item in placed:
        if item.rank in last:
            before[item.action] = last[item.rank]
        last[item.rank] = item
    current: Placed | None = max(last.values(), key=lambda item: item.free)
    path: list[Placed] = []
    while current is not None:
        path.append(current)
        source = by_action[current.cause] if current.cause is not None else None
        current = _later(source, before.get(current.action))
    return path[::-1]


def _later(source: Placed | None, previous: Placed | None) -> Placed | None:
    """The predecessor that let an action start last."""
    if source is None or previous is None:
        return source or previous
    return source if source.arrival >= previous.free else previous
