"""Asynchronous parameter servers: threads for the workers apply gradients as they come.

    worker i    | F B | send shares, receive weights | F B | ...
    thread i         | receive | lock: apply, copy | send |          on each server's rank

The lock is the server: whoever has it applies one gradient alone and copies the weights of that
moment. With a bound on staleness a thread keeps its answer back until the slowest worker is near
enough. With several servers each applies its share of a gradient when that comes: their orders may
differ. The arrivals are logged; `replay.py` repeats them step by step. Workers clip: a server sees
a share of a gradient only.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.compression import Compressor, empty_message, message_bytes, unpacked
from executor.strategies.compute import gradient_of, norm_of
from executor.strategies.link import size_of
from executor.strategies.replays.log import Applied, Trained, Work
from executor.strategies.replica import FlatOptimizer, clipped
from executor.strategies.shares import Share, pulled, shares
from parsim.plan.strategies import AsynchronousServer, of_kind


@dataclass(slots=True)
class Server:
    """A share of the weights, who applied what, and how many rounds each worker has done."""

    number: int
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
            self.weights.apply(gradient, len(self.applied) // self.workers)
            number = self.done[worker]
            self.applied.append(Applied(worker, number, self.pulled[worker], self.number))
            self.done[worker] = number + 1
            self.changed.notify_all()
            if self.bound is not None:
                least = number - self.bound
                self.changed.wait_for(lambda: min(self.done) > least)
            self.pulled[worker] = len(self.applied)
            return self.weights.weights


def asynchronous_server(work: Work) -> Trained:
    """Train until every worker has done its rounds; the servers' ranks have workers too."""
    strategy = of_kind(work.plan.strategy, AsynchronousServer)
    rank, world = dist.get_rank(), dist.get_world_size()
    start = work.replica.weights
    pieces = shares(strategy, len(start), world)
    servers = {
        number: Server(
            number, FlatOptimizer(start[share.part], work.servers_config), world, strategy.staleness
        )
        for number, share in enumerate(pieces)
        if share.rank == rank
    }
    threads = [
        threading.Thread(target=_serve, args=(server, worker, work, strategy))
        for server in servers.values()
        for worker in range(world)
        if worker != rank
    ]
    for thread in threads:
        thread.start()
    compressor, trained = Compressor(strategy), Trained(weights=start)
    for number in range(work.rounds):
        loss, gradient = gradient_of(work, number)
        norm = norm_of(gradient)
        gradient = clipped(gradient, work.config.clip, norm)
        weights = _exchanged(compressor, pieces, servers, gradient)
        work.end(trained, number, loss, float(norm), weights)
    for thread in threads:
        thread.join()
    mine = {number: server.weights.weights for number, server in servers.items()}
    trained.weights = pulled(pieces, mine, start.device)
    trained.applied = [entry for server in servers.values() for entry in server.applied]
    return trained


def _exchanged(
    compressor: Compressor, cuts: Sequence[Share], servers: dict[int, Server], gradient: Tensor
) -> Tensor:
    """Send every share to its server at once; the weights that come back."""
    rank, strategy = dist.get_rank(), compressor.strategy
    parts = [torch.empty_like(gradient[share.part]) for share in cuts]
    packed = [compressor.pack(index, gradient[share.part]) for index, share in enumerate(cuts)]
    messages = []
    for index, share in enumerate(cuts):
        if share.rank != rank:
            push, pull = tags(index, rank)
            messages.append(dist.isend(packed[index], share.rank, tag=push))
            messages.append(dist.irecv(parts[index], share.rank, tag=pull))
    for index, server in servers.items():
        mine = unpacked(strategy, packed[index], cuts[index].size)
        parts[index] = server.exchange(rank, mine)
    for message in messages:
        message.wait()
    return torch.cat(parts)


def tags(server: int, worker: int) -> tuple[int, int]:
    """What a worker's gradient and its answer are told apart by."""
    first = 2 * (server * dist.get_world_size() + worker)
    return first, first + 1


def _serve(server: Server, worker: int, work: Work, strategy: AsynchronousServer) -> None:
    """Answer one worker."""
    like, (push, pull) = server.weights.values, tags(server.number, worker)
    values = len(like)
    for _ in range(work.rounds):
        message = empty_message(strategy, values, like.device)
        dist.recv(message, worker, tag=push)
        work.link.wait(received=message_bytes(strategy, values))
        answer = server.exchange(worker, unpacked(strategy, message, values))
        work.link.wait(sent=size_of(values))
        dist.send(answer, worker, tag=pull)
