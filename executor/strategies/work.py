"""What a strategy's runner is given: plan, replica, batches, optimizer, rounds, and a clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from executor.model.loss import Batch
from executor.strategies.link import Link
from executor.strategies.replays.log import Ended, Trained
from executor.strategies.replica import FlatReplica
from executor.training.update_rule import OptimizerConfig
from parsim.layout.laid import Laid
from parsim.plan import Plan
from parsim.sim.branches.placement import Placement

Batches = Callable[[int, int], Batch]
"""The batch of a worker in a round."""


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
    replica: FlatReplica
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
