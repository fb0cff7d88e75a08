"""How many updates old gradients were when they were applied, by the logs of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from executor.strategies.replays.log import Applied, Event


def ages(applied: Sequence[Applied]) -> list[int]:
    """Updates between each worker's copy of the weights and its own update, server by server."""
    count: dict[int, int] = defaultdict(int)
    old = []
    for entry in applied:
        old.append(count[entry.server] - entry.version)
        count[entry.server] += 1
    return old


def ages_of_peers(logs: Sequence[Sequence[Event]]) -> list[int]:
    """Updates of all peers between each one's copy of its weights and its own update."""
    merged = sorted(
        (event.seconds, worker, event.kind)
        for worker, log in enumerate(logs)
        for event in log
        if event.kind != "average"
    )
    updates, copied, old = 0, [0] * len(logs), []
    for _, worker, kind in merged:
        if kind == "copy":
            copied[worker] = updates
        else:
            old.append(updates - copied[worker])
            updates += 1
    return old
