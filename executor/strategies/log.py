"""What a training with a strategy leaves: losses, seconds, and who applied what when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from executor.strategies.replica import Batch, Replica
from parsim.plan import Plan

Batches = Callable[[int, int], Batch]
"""The batch of a worker in a round."""


class Applied(NamedTuple):
    """One gradient that a server applied: whose, of which round, of which version of the weights.

    `version` counts the updates that were applied when the worker copied the weights.
    """

    worker: int
    round: int
    version: int


@dataclass(slots=True, kw_only=True)
class Trained:
    """What one rank knows at the end; seconds from the start of the training.

    `losses` are (seconds, own loss) of each of this rank's rounds, `weights` the final ones (those
    of the server, where there is one), `applied` the order of arrivals, on the rank that saw it.
    """

    losses: list[tuple[float, float]] = field(default_factory=list)
    weights: Tensor
    applied: list[Applied] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a strategy's runner gets: the plan, this rank's replica, batches, rounds, a clock.

    `slow` is how many times as long this rank computes: it sleeps for the rest.
    """

    plan: Plan
    replica: Replica
    batches: Batches
    rounds: int
    clock: Callable[[], float]
    slow: float = 1.0
