"""What a training with a strategy leaves: losses, seconds, who applied what when, and how old."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor


class Applied(NamedTuple):
    """One gradient that a server applied: whose, of which round, of which version of the weights.

    `version` counts the updates that this server had applied when the worker copied its weights.
    """

    worker: int
    round: int
    version: int
    server: int = 0


class Event(NamedTuple):
    """What a peer did to its weights: copy them, average with a peer, apply a gradient.

    `kind` is "copy", "average" or "apply"; an average is `round` of its `initiator`, with `peer`.
    """

    seconds: float
    kind: str
    round: int
    initiator: int = -1
    peer: int = -1


class Ended(NamedTuple):
    """The end of a worker's round: its number, when that was, own loss, norm of the gradient.

    (Of a single process the loss is that of all its copies.)

    The norm is that before clipping; NaN where nobody takes it.
    """

    round: int
    seconds: float
    loss: float
    norm: float


@dataclass(slots=True, kw_only=True)
class Trained:
    """What one rank knows at the end; seconds from the start of the training.

    `rounds` are the ends of this rank's rounds, `weights` the final ones (those of the server,
    where there is one), `applied` the arrivals in their order, on the ranks that saw them, `events`
    what a peer did in order. `copies` are the weights that this rank went on with after so many
    rounds, where they were to be kept.
    """

    rounds: list[Ended] = field(default_factory=list)
    weights: Tensor
    applied: list[Applied] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    copies: dict[int, Tensor] = field(default_factory=dict)


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
