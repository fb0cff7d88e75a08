"""Asynchronous parameter server: a thread for each worker applies its gradients as they come.

    worker i    | F B | send gradient, receive weights | F B | ...
    thread i         | receive | lock: apply, copy | send |          on the server's rank

The lock is the server: whoever has it applies one gradient alone and copies the weights of that
moment. With a bound on staleness a thread keeps its answer back until the slowest worker is near
enough. The order of arrivals is logged; `replay.py` repeats it step by step.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.compute import gradient_of
from executor.strategies.log import Applied, Trained, Work
from executor.strategies.replica import FlatOptimizer, Recipe
from parsim.plan.strategies import AsynchronousServer, of_kind

SERVER = 0
"""The rank whose process holds the weights."""


@dataclass(slots=True)
class Server:
    """The weights, who applied what, and how many rounds each worker has done."""

    weights: FlatOptimizer
    workers: int
    bound: int | None
    applied: list[Applied] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    pulled: list[int] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        """Nobody has done a round."""
        self.done, self.pulled = [0] * self.workers, [0] * self.workers

    def exchange(self, worker: int, gradient: Tensor) -> Tensor:
        """Apply one gradient and copy the weights, when the worker may go on."""
        with self.changed:
            self.weights.apply(gradient)
            number = self.done[worker]
            self.applied.append(Applied(worker, number, self.pulled[worker]))
            self.done[worker] = number + 1
            self.changed.notify_all()
            if self.bound is not None:
                least = number - self.bound
                self.changed.wait_for(lambda: min(self.done) > least)
            self.pulled[worker] = len(self.applied)
            return self.weights.weights


def asynchronous_server(work: Work, recipe: Recipe) -> Trained:
    """Train until every worker has done its rounds; the server's rank has a worker too."""
    strategy = of_kind(work.plan.strategy, AsynchronousServer)
    rank, world = dist.get_rank(), dist.get_world_size()
    start = work.replica.weights
    server = Server(FlatOptimizer(start, recipe), world, strategy.staleness)
    threads = []
    if rank == SERVER:
        threads = [
            threading.Thread(target=_serve, args=(server, worker, work.rounds, start))
            for worker in range(world)
            if worker != SERVER
        ]
    for thread in threads:
        thread.start()
    trained = Trained(weights=start)
    for number in range(work.rounds):
        loss, gradient = gradient_of(work, number)
        if rank == SERVER:
            weights = server.exchange(rank, gradient)
        else:
            weights = torch.empty_like(gradient)
            dist.send(gradient, SERVER, tag=2 * rank)
            dist.recv(weights, SERVER, tag=2 * rank + 1)
        work.replica.load(weights)
        trained.losses.append((work.clock(), loss))
    for thread in threads:
        thread.join()
    final = server.weights.weights
    dist.broadcast(final, src=SERVER)
    trained.weights, trained.applied = final, server.applied
    return trained


def _serve(server: Server, worker: int, rounds: int, like: Tensor) -> None:
    """Answer one worker."""
    for _ in range(rounds):
        gradient = torch.empty_like(like)
        dist.recv(gradient, worker, tag=2 * worker)
        dist.send(server.exchange(worker, gradient), worker, tag=2 * worker + 1)
