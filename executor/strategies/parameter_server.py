"""Synchronous parameter server: ranks hold shares of the weights and sum all gradients for them.

A server is part of the process of a worker: on real hosts it would be beside it. Its share's
gradients are added in order of rank, so that the sum is the same in every run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.backup_workers import backup_workers
from executor.strategies.compression import (
    Compressor,
    add,
    empty_message,
    message_bytes,
    unpacked,
)
from executor.strategies.compute import gradient_of, weight
from executor.strategies.link import Link, begun_together, size_of
from executor.strategies.replays.log import Trained
from executor.strategies.replica import FlatOptimizer
from executor.strategies.server_messages import Rooms, Share, others, pull, push, shares
from executor.strategies.work import Work
from parsim.plan.strategies import ParameterServer, of_kind


def parameter_server(work: Work) -> Trained:
    """Push the gradient's shares, update one's own share, pull all shares."""
    strategy = of_kind(work.plan.strategy, ParameterServer)
    if strategy.backup_workers:
        return backup_workers(work, strategy)
    weights, rank = work.replica.flat, dist.get_rank()
    pieces = shares(strategy, len(weights), dist.get_world_size())
    served = {
        number: FlatOptimizer(weights[share.part].clone(), work.config)
        for number, share in enumerate(pieces)
        if share.rank == rank
    }
    servers = _Servers(work.link, pieces, Compressor(strategy))
    rooms = servers.rooms(served, weights.device)
    trained, share_of_mean = Trained(weights=weights), weight(work.plan, rank)
    for number in range(work.rounds):
        loss, gradient = gradient_of(work, number)
        if share_of_mean != 1.0:
            gradient *= share_of_mean
        means = servers.means(gradient, rooms)
        norm = _norm(means, gradient.device)
        for index, server in served.items():
            server.apply(means[index], number, norm)
        servers.pull({index: server.flat for index, server in served.items()}, weights)
        work.end(trained, number, loss, float(norm))
    return trained


class _Servers(NamedTuple):
    """All servers of a step as this rank sees them: its link to them, their shares."""

    link: Link
    pieces: list[Share]
    compressor: Compressor

    def rooms(self, served: Collection[int], device: torch.device) -> Rooms:
        """Room for all other ranks' messages of the shares that this rank serves."""
        return {
            index: {
                worker: empty_message(self.compressor.strategy, self.pieces[index].size, device)
                for worker in others()
            }
            for index in served
        }

    def means(self, gradient: Tensor, rooms: Rooms) -> dict[int, Tensor]:
        """Push all shares of a gradient; the means of those that this rank serves, by their index.

        What is in the gradient and the rooms is lost: the sums take their place.
        """
        messages = [
            self.compressor.pack(index, gradient[share.part])
            for index, share in enumerate(self.pieces)
        ]
        begin = begun_together(self.link, gradient.device)
        push(self.pieces, messages, rooms)
        self._waited(partial(message_bytes, self.compressor.strategy), begin, to_servers=True)
        rank = dist.get_rank()
        return {
            index: self._mean(self.pieces[index], {**room, rank: messages[index]})
            for index, room in rooms.items()
        }

    def pull(self, mine: Mapping[int, Tensor], weights: Tensor) -> None:
        """Write all shares into the weights of every rank, `mine` those that this rank serves."""
        begin = begun_together(self.link, weights.device)
        pull(self.pieces, mine, weights)
        self._waited(size_of, begin, to_servers=False)

    def _mean(self, share: Share, messages: Mapping[int, Tensor]) -> Tensor:
        """The mean of all workers' messages, added in order of rank."""
        strategy, (first, *following) = self.compressor.strategy, sorted(messages)
        total = unpacked(strategy, messages[first], share.size)
        for worker in following:
            add(strategy, total, messages[worker])
        return total.div_(len(messages))

    def _waited(self, size: Callable[[int], float], begin: float, *, to_servers: bool) -> None:
        """Wait until all shares have passed this rank's link: gradients to servers, or weights."""
        rank, workers = dist.get_rank(), dist.get_world_size()
        here = [size(share.size) for share in self.pieces if share.rank == rank]
        there = [size(share.size) for share in self.pieces if share.rank != rank]
        at_server, at_worker = (workers - 1) * sum(here), sum(there)
        if to_servers:
            self.link.wait(received=at_server, sent=at_worker, since=begin)
        else:
            self.link.wait(received=at_worker, sent=at_server, since=begin)


def _norm(means: Mapping[int, Tensor], device: torch.device) -> Tensor:
    """The norm of the mean gradient, of which each server has a share; on every rank."""
    total = torch.zeros((), device=device)
    for mean in means.values():
        total += torch.linalg.vector_norm(mean).square()
    dist.all_reduce(total)
    return total.sqrt()
