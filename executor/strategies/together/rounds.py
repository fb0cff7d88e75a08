"""Rounds of ranks that hold one model together: their samples, their training, their losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from executor.model.loss import Batch
from executor.strategies.compute import average
from executor.strategies.replays.log import Trained
from executor.strategies.replica import FlatOptimizer
from executor.strategies.work import Work


class Holder(Protocol):
    """What one rank of such a group computes."""

    def gradient(self, number: int) -> tuple[float, Tensor]:
        """Mean loss of a round's samples; the gradient of what is on this rank."""
        ...

    def norm(self, gradient: Tensor) -> Tensor:
        """The norm of the whole gradient."""
        ...


def train_together(work: Work, holder: Holder) -> Trained:
    """Train what is on this rank; every rank must call it."""
    optimizer = FlatOptimizer(work.replica.flat, work.config)
    trained = Trained(weights=work.replica.flat)
    for number in range(work.rounds):
        loss, gradient = holder.gradient(number)
        norm = holder.norm(gradient)
        optimizer.apply(gradient, number, norm)
        work.end(trained, number, loss, float(norm))
    return trained


def microbatches_of(work: Work, number: int) -> Iterator[Batch]:
    """The micro-batches of this rank's group in a round: the samples of all its ranks."""
    sharers, rank = work.plan.strategy.sharers, dist.get_rank()
    first = rank - rank % sharers
    batches = [work.batches(worker, number) for worker in range(first, first + sharers)]
    inputs, targets = (torch.cat(list(halves)) for halves in zip(*batches, strict=True))
    count = work.plan.num_microbatches
    return zip(inputs.chunk(count), targets.chunk(count), strict=True)


def mean_loss(loss: float) -> float:
    """The mean over all groups of what the ranks of each know alike."""
    return float(average(torch.tensor([loss], dtype=torch.float64)))
