"""A synchronous server that waits for the first n - e gradients of a step and drops the others.

    worker 0   | F B | push | pull | F B | push | ...
    worker 1   | F B |push| pull   | F B | push | ...
    worker 2   |  F       B        | push: dropped, pull | F B | ...

A gradient of a step that is over changes nothing; its worker goes on with the newest weights. A
worker that is late computes to the end: it cannot be stopped within a backward.

Source: Chen et al., Revisiting Distributed Synchronous SGD (arXiv 1604.00981).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.compression import Compressor, empty_message, unpacked
from executor.strategies.compute import gradient_of, norm_of
from executor.strategies.replays.log import Applied, Trained
from executor.strategies.replica import FlatOptimizer
from executor.strategies.threads import answering
from executor.strategies.work import Work
from parsim.plan.strategies import ParameterServer

SERVER = 0
"""The rank whose process holds the weights."""


@dataclass(slots=True)
class Quorum:
    """The weights, the step that is open, and whose gradients of it have come."""

    weights: FlatOptimizer
    needed: int
    step: int = 0
    come: dict[int, Tensor] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def exchange(self, worker: int, number: int, gradient: Tensor, weights: Tensor) -> int:
        """Count a gradient of the open step, drop one of an earlier; the step to go on with.

        Its weights are copied into the room for them.
        """
        with self.changed:
            if number == self.step:
                self.come[worker] = gradient
                if len(self.come) == self.needed:
                    self._close()
            self.changed.wait_for(lambda: self.step > number)
            weights.copy_(self.weights.flat)
            return self.step

    def _close(self) -> None:
        """Update with the mean of those that came, added in order of rank."""
        self.weights.apply(mean_in_order(self.come), self.step)
        self.applied += [Applied(worker, self.step, self.step) for worker in sorted(self.come)]
        self.step += 1
        self.come.clear()
        self.changed.notify_all()


def mean_in_order(gradients: dict[int, Tensor]) -> Tensor:
    """The mean of gradients by worker, added in order of the workers."""
    total = torch.zeros_like(next(iter(gradients.values())))
    for worker in sorted(gradients):
        total += gradients[worker]
    return total.div_(len(gradients))


def backup_workers(work: Work, strategy: ParameterServer) -> Trained:
    """Train until the server has taken all its steps; a late worker misses some of them."""
    rank, world = dist.get_rank(), dist.get_world_size()
    weights = work.replica.flat
    server = Quorum(FlatOptimizer(weights.clone(), work.config), world - strategy.backup_workers)
    others = [worker for worker in range(world) if worker != SERVER] if rank == SERVER else []
    compressor, trained, number = Compressor(strategy), Trained(weights=weights), 0
    with answering(_serve, ((server, worker, work, strategy) for worker in others)):
        while number < work.rounds:
            loss, gradient = gradient_of(work, number)
            message = compressor.pack(0, gradient)
            if rank == SERVER:
                mine = unpacked(strategy, message, len(weights))
                following = server.exchange(rank, number, mine, weights)
            else:
                following = _asked(message, number, weights)
            work.end(trained, number, loss, float(norm_of(gradient)))
            number = following
    if rank == SERVER:
        weights.copy_(server.weights.flat)
    dist.broadcast(weights, src=SERVER)
    trained.applied = server.applied
    return trained


def _asked(message: Tensor, number: int, weights: Tensor) -> int:
    """Send a gradient of a step; the step that comes back, with weights into their room."""
    rank, step = dist.get_rank(), torch.tensor([number], device=weights.device)
    dist.send(step, SERVER, tag=4 * rank)
    dist.send(message, SERVER, tag=4 * rank + 1)
    dist.recv(step, SERVER, tag=4 * rank + 2)
    dist.recv(weights, SERVER, tag=4 * rank + 3)
    return int(step)


def _serve(server: Quorum, worker: int, work: Work, strategy: ParameterServer) -> None:
    """Answer one worker until the training is over."""
    weights = torch.empty_like(server.weights.flat)
    values, number = len(weights), torch.zeros(1, dtype=torch.int64, device=weights.device)
    message = empty_message(strategy, values, weights.device)
    while int(number) < work.rounds:
        dist.recv(number, worker, tag=4 * worker)
        dist.recv(message, worker, tag=4 * worker + 1)
        gradient = unpacked(strategy, message, values)
        number[0] = server.exchange(worker, int(number), gradient, weights)
        dist.send(number, worker, tag=4 * worker + 2)
        dist.send(weights, worker, tag=4 * worker + 3)
