"""The chain of actions that a simulated plan's pipeline phase waits for."""

from __future__ import annotations

from parsim.schedule import Kind
from parsim.sim.evaluate import Evaluation
from parsim.sim.placed import Placed


def critical_path(
    found: Evaluation,
    placed: list[Placed],
    number: dict[tuple[int, str, int, int], int],
) -> list[int]:
    """Walk back from the last action: whichever predecessor ends when this one starts."""
    by_key = {tuple(item.action): item for item in placed}
    before: dict[tuple[int, ...], Placed] = {}
    last: dict[int, Placed] = {}
    for item in placed:
        if item.rank in last:
            before[tuple(item.action)] = last[item.rank]
        last[item.rank] = item
    at: Placed | None = max(last.values(), key=lambda item: item.free)
    path: list[int] = []
    while at is not None:
        path.append(number[(at.rank, at.action.kind.name, at.action.stage, at.action.microbatch)])
        at = _cause(found, at, before.get(tuple(at.action)), by_key)
    return path[::-1]


def _cause(
    found: Evaluation,
    item: Placed,
    previous: Placed | None,
    by_key: dict[tuple[int, ...], Placed],
) -> Placed | None:
    """The predecessor that let an action start last."""
    stage, kind, microbatch = item.action
    last_stage = found.graph.schedule.num_stages - 1
    source: Placed | None = None
    if kind == Kind.F and stage > 0:
        source = by_key[(stage - 1, Kind.F, microbatch)]
    elif kind == Kind.B or kind == Kind.I:
        source = (
            by_key[(stage, Kind.F, microbatch)]
            if stage == last_stage
            else by_key.get((stage + 1, Kind.B, microbatch))
            or by_key[(stage + 1, Kind.I, microbatch)]
        )
    if source is None or previous is None:
        return source or previous
    return source if source.arrival >= previous.free else previous
