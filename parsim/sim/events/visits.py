"""What each action of a pipeline rank needs, produces and sends, in the order of the rank's row."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from parsim.schedule import Action, Kind, Schedule

COMPUTE = (Kind.F, Kind.B, Kind.I, Kind.W)
"""Kinds of action that compute."""


Visit = tuple[Action, int, int, float, float, bool]
"""One action of a rank's row: (action, needed, result, seconds, hop, last), a tuple for speed.

`needed` and `result` number the results it consumes and produces (-1: none). It takes `seconds`
where nothing is shared; `hop` is the length of its message (-1: the result stays on the rank).
`last` says whether it completes the gradients of a stage that has pieces.
"""


class _Part(NamedTuple):
    """What all micro-batches of a stage's forward or backward have in common.

    `needed` and `result` are the numbers of micro-batch 0's results (-1: none); the others' follow.
    """

    needed: int
    result: int
    seconds: float
    hop: float


def visits(
    schedule: Schedule,
    rank: int,
    seconds: Mapping[Kind, Sequence[float]],
    hop: Sequence[float],
    in_pieces: Collection[int],
) -> Iterator[Visit]:
    """Walk a rank's row.

    Args:
        schedule: actions of all ranks.
        rank: whose row.
        seconds: of an action of each kind on each stage.
        hop: seconds of the message behind each stage.
        in_pieces: stages whose last backward releases gradients in pieces.
    """
    stages = schedule.stages_on(rank)
    parts = {
        (stage, kind): _part(schedule, stage, kind, seconds[kind][stage], hop)
        for stage in stages
        for kind in COMPUTE
    }
    row = schedule.ranks[rank]
    last = {action.stage: action for action in row if action.kind in (Kind.B, Kind.W)}
    last = {stage: action for stage, action in last.items() if stage in in_pieces}
    for action in row:
        stage, kind, microbatch = action
        needed, result, length, message = parts[stage, kind]
        yield (
            action,
            needed + microbatch if needed >= 0 else -1,
            result + microbatch if result >= 0 else -1,
            length,
            message,
            last.get(stage) is action,
        )


def _part(
    schedule: Schedule, stage: int, kind: Kind, seconds: float, hop: Sequence[float]
) -> _Part:
    """What a stage's actions of a kind need, produce and send."""
    if kind == Kind.W:  # its I came before on this rank; nothing waits for a W
        return _Part(-1, -1, seconds, -1.0)
    ahead, ends = kind == Kind.F, schedule.is_last(stage)
    needed = -1
    if not ahead:
        needed = _number(schedule, stage if ends else stage + 1, ahead=ends)
    elif not schedule.is_first(stage):
        needed = _number(schedule, stage - 1, ahead=True)
    target = stage + 1 if ahead else stage - 1
    outside = ends if ahead else schedule.is_first(stage)
    leaves = not outside and schedule.stage_rank[target] != schedule.stage_rank[stage]
    message = hop[min(stage, target)] if leaves else -1.0
    return _Part(needed, _number(schedule, stage, ahead=ahead), seconds, message)


def _number(schedule: Schedule, stage: int, *, ahead: bool) -> int:
    """Number of the result of micro-batch 0's forward or backward."""
    return (2 * stage + (not ahead)) * schedule.num_microbatches
