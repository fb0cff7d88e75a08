"""Local SGD and DiLoCo: workers step by themselves and average their weights every n-th step."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.mesh import subgroup
from executor.strategies.compute import average, gradient_of
from executor.strategies.link import begun_together, size_of
from executor.strategies.replays.log import Trained
from executor.strategies.replica import FlatOptimizer
from executor.strategies.work import Work
from parsim.plan.strategies import DiLoCo, LocalSGD, of_kind
from parsim.strategy.task import Rounds


def local_sgd(work: Work) -> Trained:
    """Average gradients at first (`after`) or always (`every` = 1), else weights now and then."""
    strategy = of_kind(work.plan.strategy, LocalSGD)
    optimizer, trained = _start(work)
    late = Rounds(every=strategy.every, since=strategy.after)
    often = Rounds(every=strategy.node_every or strategy.every, since=strategy.after)
    node = _node_group() if strategy.node_every else None
    for number in range(work.rounds):
        loss, gradient = gradient_of(work, number)
        at_once = number < strategy.after or strategy.every == 1
        norm = optimizer.apply(_average(work, gradient) if at_once else gradient, number)
        if not at_once:
            if node is not None and number in often:
                _average(work, optimizer.flat, node)
            if number in late:
                _average(work, optimizer.flat)
        work.end(trained, number, loss, norm)
    return trained


def diloco(work: Work) -> Trained:
    """Take the mean change of every so-many steps as the gradient of an outer SGD."""
    strategy = of_kind(work.plan.strategy, DiLoCo)
    optimizer, trained = _start(work)
    outer = Outer(optimizer.weights, strategy)
    for number in range(work.rounds):
        loss, gradient = gradient_of(work, number)
        norm = optimizer.apply(gradient, number)
        if number in Rounds(every=strategy.every):
            optimizer.flat.copy_(outer.step(_average(work, optimizer.flat)))
        work.end(trained, number, loss, norm)
    return trained


def _average(work: Work, values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Average over the ranks of a group, once a ring's bytes have passed this rank's link."""
    begin, count = begun_together(work.link, values.device), dist.get_world_size(group)
    average(values, group)
    passed = 2.0 * (count - 1) / count * size_of(len(values))
    work.link.wait(received=passed, sent=passed, since=begin)
    return values


class Outer:
    """DiLoCo's outer optimizer: SGD with Nesterov momentum on start less mean of the workers."""

    def __init__(self, weights: Tensor, strategy: DiLoCo) -> None:
        self._weights = torch.nn.Parameter(weights.clone())
        self._weights.grad = torch.empty_like(weights)
        momentum = strategy.outer_momentum
        self._optimizer = torch.optim.SGD(
            [self._weights],
            lr=strategy.outer_lr,
            momentum=momentum,
            nesterov=momentum > 0.0,
            fused=True,
        )

    def step(self, mean: Tensor) -> Tensor:
        """The weights that all workers go on from, until the next step."""
        torch.sub(self._weights.detach(), mean, out=self._weights.grad)
        self._optimizer.step()
        return self._weights.detach()


def _start(work: Work) -> tuple[FlatOptimizer, Trained]:
    weights = work.replica.flat
    return FlatOptimizer(weights, work.config), Trained(weights=weights)


def _node_group() -> dist.ProcessGroup | None:
    """The ranks of this rank's host, as torchrun counts them."""
    world = dist.get_world_size()
    size = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    return subgroup([range(first, min(first + size, world)) for first in range(0, world, size)])
