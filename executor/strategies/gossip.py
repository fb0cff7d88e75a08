"""Gossip (D-PSGD): weights are averaged with the neighbours' of the round's start, in step."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.compute import gradient_of
from executor.strategies.link import size_of
from executor.strategies.replays.log import Trained, Work
from executor.strategies.replica import FlatOptimizer
from parsim.plan.strategies import Gossip, of_kind
from parsim.strategy.gossip import neighbours


def gossip(work: Work) -> Trained:
    """Send weights while computing; then average, then step with the gradient of the old ones."""
    strategy = of_kind(work.plan.strategy, Gossip)
    rank, world = dist.get_rank(), dist.get_world_size()
    sources = neighbours(rank, world, strategy.topology)
    targets = [
        other for other in range(world) if rank in neighbours(other, world, strategy.topology)
    ]
    mine = work.replica.flat  # nobody writes to it while it is sent and computed with
    received = [torch.empty_like(mine) for _ in sources]
    optimizer, trained = FlatOptimizer(mine, work.config), Trained(weights=mine)
    for number in range(work.rounds):
        begin = time.perf_counter()
        sends = [dist.isend(mine, target, tag=number) for target in targets]
        gets = [
            dist.irecv(values, source, tag=number)
            for values, source in zip(received, sources, strict=True)
        ]
        loss, gradient = gradient_of(work, number)
        for message in (*sends, *gets):
            message.wait()
        size = size_of(len(mine))
        work.link.wait(received=size * len(gets), sent=size * len(sends), since=begin)
        mix(mine, received)
        norm = optimizer.apply(gradient, number)
        work.end(trained, number, loss, norm)
    return trained


def mix(mine: Tensor, others: list[Tensor]) -> Tensor:
    """Replace a worker's weights by the mean of its own and its neighbours'."""
    for weights in others:
        mine += weights
    return mine.div_(len(others) + 1)
