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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.compression import Compressor, empty_message, message_bytes, unpacked
from executor.strategies.compute import gradient_of, norm_of
from executor.strategies.link import size_of
from executor.strategies.replays.log import Applied, Trained
from executor.strategies.replica import FlatOptimizer, clip
from executor.strategies.server_messages import Share, pull, shares
from executor.strategies.threads import answering
from executor.strategies.work import Work
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

    def exchange(self, worker: int, gradient: Tensor, weights: Tensor) -> None:
        """Apply one gradient and copy the weights to their room, when the worker may go on."""
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
            weights.copy_(self.weights.flat)


def asynchronous_server(work: Work) -> Trained:
    """Train until every worker has done its rounds; the servers' ranks have workers too."""
    strategy = of_kind(work.plan.strategy, AsynchronousServer)
    rank, world = dist.get_rank(), dist.get_world_size()
    weights = work.replica.flat
    pieces = shares(strategy, len(weights), world)
    servers = _servers_here(work, pieces, strategy.staleness)
    others = [worker for worker in range(world) if worker != rank]
    calls = ((server, worker, work, strategy) for server in servers.values() for worker in others)
    compressor, trained = Compressor(strategy), Trained(weights=weights)
    with answering(_serve, calls):
        for number in range(work.rounds):
            loss, gradient = gradient_of(work, number)
            norm = norm_of(gradient)
            _exchange(compressor, pieces, servers, clip(gradient, work.config.clip, norm), weights)
            work.end(trained, number, loss, float(norm))
    pull(pieces, {number: server.weights.flat for number, server in servers.items()}, weights)
    trained.applied = [entry for server in servers.values() for entry in server.applied]
    return trained


def _servers_here(work: Work, pieces: Sequence[Share], bound: int | None) -> dict[int, Server]:
    """The servers of this rank by number, with their shares of the weights."""
    rank, world, weights = dist.get_rank(), dist.get_world_size(), work.replica.flat
    return {
        number: Server(
            number, FlatOptimizer(weights[share.part].clone(), work.servers_config), world, bound
        )
        for number, share in enumerate(pieces)
        if share.rank == rank
    }


def _exchange(
    compressor: Compressor,
    pieces: Sequence[Share],
    servers: Mapping[int, Server],
    gradient: Tensor,
    weights: Tensor,
) -> None:
    """Send every share to its server at once; the weights that come back take their room."""
    rank, strategy = dist.get_rank(), compressor.strategy
    packed = [compressor.pack(index, gradient[share.part]) for index, share in enumerate(pieces)]
    messages = []
    for index, share in enumerate(pieces):
        if share.rank != rank:
            push, answer = tags(index, rank)
            messages.append(dist.isend(packed[index], share.rank, tag=push))
            messages.append(dist.irecv(weights[share.part], share.rank, tag=answer))
    for index, server in servers.items():
        share = pieces[index]
        mine = unpacked(strategy, packed[index], share.size)
        server.exchange(rank, mine, weights[share.part])
    for message in messages:
        message.wait()


def tags(server: int, worker: int) -> tuple[int, int]:
    """What a worker's gradient and its answer are told apart by."""
    first = 2 * (server * dist.get_world_size() + worker)
    return first, first + 1


def _serve(server: Server, worker: int, work: Work, strategy: AsynchronousServer) -> None:
    """Answer one worker."""
    weights, (push, answer) = torch.empty_like(server.weights.flat), tags(server.number, worker)
    values = len(weights)
    message = empty_message(strategy, values, weights.device)
    for _ in range(work.rounds):
        dist.recv(message, worker, tag=push)
        work.link.wait(received=message_bytes(strategy, values))
        server.exchange(worker, unpacked(strategy, message, values), weights)
        work.link.wait(sent=size_of(values))
        dist.send(weights, worker, tag=answer)
