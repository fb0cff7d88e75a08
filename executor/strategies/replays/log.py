"""What a training with a strategy leaves: losses, seconds, and who applied what when."""

from __future__ import annotations

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
