"""What a training with a strategy leaves: losses, seconds, and who applied what when."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from executor.strategies.link import Link
from executor.strategies.replica import Batch, Replica
from executor.training.update_rule import OptimizerConfig
from parsim.layout.laid import Laid
from parsim.plan import Plan
from parsim.sim.branches.placement import Placement

Batches = Callable[[int, int], Batch]
"""The batch of a worker in a round."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a strategy's runner gets: plan, this rank's replica, batches, optimizer, rounds, clock.

    `slow` is how many times as long workers compute: they sleep for the rest, and for `delay`
    seconds more of (worker, round). `told` hears of each end of a round; of every `keep`-th the
    weights are kept (0: of none). What this rank sends and receives passes its `link`. Where
    several workers hold a model together, `placement` says who has which path, or `laid` what
    each has of all tensors; `replica` is then that of this rank's part.
    """

    plan: Plan
    replica: Replica
    batches: Batches
    config: OptimizerConfig
    rounds: int
    clock: Callable[[], float]
    slow: Mapping[int, float] = field(default_factory=dict)
    delay: Callable[[int, int], float] | None = None
    told: Callable[[Ended], None] | None = None
    keep: int = 0
    link: Link = field(default_factory=Link)
    placement: Placement | None = None
    laid: Laid | None = None

    @property
    def servers_config(self) -> OptimizerConfig:
        """The optimizer of a server that gets gradients which are clipped already."""
        return dataclasses.replace(self.config, clip=0.0)

    def end(
        self,
        trained: Trained,
        number: int,
        loss: float,
        norm: float,
        weights: Callable[[], Tensor] | None = None,
    ) -> None:
        """Note that a round is over; `weights` copies those to go on with: None, the replica's."""
        ended = Ended(number, self.clock(), loss, norm)
        trained.rounds.append(ended)
        if self.keep and (number + 1) % self.keep == 0:
            trained.copies[number + 1] = weights() if weights else self.replica.weights
        if self.told is not None:
            self.told(ended)
