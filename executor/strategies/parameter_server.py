"""Synchronous parameter server: ranks hold shares of the weights and sum all gradients for them.

A server is part of the process of a worker: on real hosts it would be beside it. Its share's
gradients are gathered and added in order of rank, so that the sum is the same in every run.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.compute import gradient_of
from executor.strategies.log import Trained, Work
from executor.strategies.replica import FlatOptimizer, Recipe
from parsim.plan.strategies import ParameterServer, of_kind


def parameter_server(work: Work, recipe: Recipe) -> Trained:
    """Push the gradient's shares, update one's own share, pull all shares."""
    strategy = of_kind(work.plan.strategy, ParameterServer)
    weights = work.replica.weights
    shares = server_shares(weights, strategy.servers)
    rank = dist.get_rank()
    served = {
        number: FlatOptimizer(share, recipe)
        for number, (server, share) in enumerate(shares)
        if server == rank
    }
    trained = Trained(weights=weights)
    for number in range(work.rounds):
        loss, gradient = gradient_of(work, number)
        sizes = [share.numel() for _, share in shares]
        for place, part in enumerate(gradient.split(sizes)):
            _push(part, shares[place][0], served.get(place))
        weights = torch.cat([_pull(share, *place) for share, place in _places(shares, served)])
        work.replica.load(weights)
        trained.losses.append((work.clock(), loss))
    trained.weights = weights
    return trained


def server_shares(weights: Tensor, servers: int | None) -> list[tuple[int, Tensor]]:
    """Each server's rank and its share of the weights, spread evenly over the ranks."""
    world = dist.get_world_size()
    count = servers or world
    return [
        (number * world // count, share) for number, share in enumerate(weights.tensor_split(count))
    ]


def _push(part: Tensor, server: int, share: FlatOptimizer | None) -> None:
    """Gather a share's gradients at its server, which updates with their mean."""
    world = dist.get_world_size()
    parts = [torch.empty_like(part) for _ in range(world)] if share is not None else None
    dist.gather(part.contiguous(), parts, dst=server)
    if share is None or parts is None:
        return
    total = torch.zeros_like(part)
    for gradient in parts:
        total += gradient
    share.apply(total / world)


def _places(
    shares: list[tuple[int, Tensor]], served: dict[int, FlatOptimizer]
) -> list[tuple[Tensor, tuple[int, FlatOptimizer | None]]]:
    return [(share, (server, served.get(number))) for number, (server, share) in enumerate(shares)]


def _pull(share: Tensor, server: int, held: FlatOptimizer | None) -> Tensor:
    """A server's share, at every worker."""
    values = torch.empty_like(share) if held is None else held.weights
    dist.broadcast(values, src=server)
    return values
