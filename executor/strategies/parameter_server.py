"""Synchronous parameter server: ranks hold shares of the weights and sum all gradients for them.

A server is part of the process of a worker: on real hosts it would be beside it. Its share's
gradients are gathered and added in order of rank, so that the sum is the same in every run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.backup_workers import backup_workers
from executor.strategies.compression import Compressor, add, empty_message, message_bytes
from executor.strategies.compute import gradient_of, weight
from executor.strategies.link import size_of
from executor.strategies.replays.log import Trained, Work
from executor.strategies.replica import FlatOptimizer
from parsim.plan.strategies import ParameterServer, Servers, of_kind


class Share(NamedTuple):
    """One server: the rank whose process it is in, and what part of the flat weights it holds."""

    rank: int
    part: slice

    @property
    def size(self) -> int:
        """How many values."""
        return int(self.part.stop - self.part.start)


def shares(strategy: Servers, values: int, workers: int) -> list[Share]:
    """So many flat weights over the servers: nearly equal parts, spread evenly over the ranks.

    Unless their number is given there is one on each host, or beside each worker (`on: devices`).
    """
    count = strategy.servers or (hosts(workers) if strategy.on == "hosts" else workers)
    ends = [0]
    for part in torch.empty(values, device="meta").tensor_split(count):
        ends.append(ends[-1] + part.numel())
    return [
        Share(number * workers // count, slice(begin, end))
        for number, (begin, end) in enumerate(pairwise(ends))
    ]


def hosts(workers: int) -> int:
    """How many machines so many workers are on, as torchrun counts them."""
    return max(workers // int(os.environ.get("LOCAL_WORLD_SIZE", str(workers))), 1)


def pull(pieces: Sequence[Share], mine: Mapping[int, Tensor], weights: Tensor) -> None:
    """Write all shares into the weights of every rank, each from its server; every rank calls it.

    All shares are on their way at once: servers on several ranks send beside each other.

    Args:
        pieces: all shares.
        mine: the weights of the shares that this rank serves, by their index in `pieces`.
        weights: the vector that the shares are parts of.
    """
    parts = [weights[share.part] for share in pieces]
    for index, values in mine.items():
        parts[index].copy_(values)
    sent = [
        dist.broadcast(part, src=share.rank, async_op=True)
        for part, share in zip(parts, pieces, strict=True)
    ]
    for broadcast in sent:
        broadcast.wait()


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
    compressor, trained = Compressor(strategy), Trained(weights=weights)
    share_of_mean = weight(work.plan, rank)
    for number in range(work.rounds):
        loss, gradient = gradient_of(work, number)
        if share_of_mean != 1.0:
            gradient *= share_of_mean
        means = _means(compressor, pieces, gradient)
        _waited(work, pieces, pushed=True)
        norm = _norm(means, gradient.device)
        for index, server in served.items():
            server.apply(means[index], number, norm)
        pull(pieces, {index: server.flat for index, server in served.items()}, weights)
        _waited(work, pieces, pushed=False)
        work.end(trained, number, loss, float(norm))
    return trained


def _waited(work: Work, pieces: Sequence[Share], *, pushed: bool) -> None:
    """Wait until all shares have passed this rank's link: gradients to servers, or weights back."""
    strategy, rank = of_kind(work.plan.strategy, ParameterServer), dist.get_rank()
    size = partial(message_bytes, strategy) if pushed else size_of
    served = sum(size(share.size) for share in pieces if share.rank == rank)
    served *= dist.get_world_size() - 1
    others = sum(size(share.size) for share in pieces if share.rank != rank)
    if pushed:
        work.link.wait(received=served, sent=others)
    else:
        work.link.wait(received=others, sent=served)


def _means(compressor: Compressor, pieces: Sequence[Share], gradient: Tensor) -> dict[int, Tensor]:
    """Push all shares of a gradient; the means of those that this rank serves, by their index.

    All are on their way before the first sum begins: servers on several ranks add beside each
    other.
    """
    pushes = [
        _Push.begun(compressor, index, share, gradient[share.part])
        for index, share in enumerate(pieces)
    ]
    means = {}
    for index, push in enumerate(pushes):
        push.sent.wait()
        if push.received:
            part = gradient[pieces[index].part]
            means[index] = _mean(compressor.strategy, push.received, part)
    return means


class _Push(NamedTuple):
    """A share's gradients on their way to its server, where they are `received`, by rank."""

    message: Tensor
    received: list[Tensor]
    sent: dist.Work

    @classmethod
    def begun(cls, compressor: Compressor, index: int, share: Share, part: Tensor) -> _Push:
        strategy, received = compressor.strategy, []
        message = compressor.pack(index, part)
        if dist.get_rank() == share.rank:
            world = range(dist.get_world_size())
            received = [empty_message(strategy, share.size, part.device) for _ in world]
        sent = dist.gather(message, received or None, dst=share.rank, async_op=True)
        return cls(message, received, sent)


def _mean(strategy: Servers, received: Sequence[Tensor], like: Tensor) -> Tensor:
    """The mean of messages, added in order of rank."""
    total = torch.zeros_like(like)
    for message in received:
        add(strategy, total, message)
    return total.div_(len(received))


def _norm(means: Mapping[int, Tensor], device: torch.device) -> Tensor:
    """The norm of the mean gradient, of which each server has a share; on every rank."""
    total = torch.zeros((), device=device)
    for mean in means.values():
        total += torch.linalg.vector_norm(mean).square()
    dist.all_reduce(total)
    return total.sqrt()
