"""Gossip, in step (D-PSGD) or not (AD-PSGD): weights are averaged with neighbours' or a peer's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from executor.strategies.compute import gradient_of
from executor.strategies.link import size_of
from executor.strategies.replays.log import Event, Trained
from executor.strategies.replica import FlatOptimizer, FlatReplica
from executor.strategies.threads import answering
from executor.strategies.work import Work
from parsim.plan.strategies import Gossip, of_kind
from parsim.strategy.gossip import neighbours


def gossip(work: Work) -> Trained:
    """Send weights while computing; then average, then step with the gradient of the old ones."""
    strategy = of_kind(work.plan.strategy, Gossip)
    mine = work.replica.flat  # nobody writes to it while it is sent and computed with
    around = neighbours(dist.get_rank(), dist.get_world_size(), strategy.topology, number=0)
    received = [torch.empty_like(mine) for _ in around]
    optimizer, trained = FlatOptimizer(mine, work.config), Trained(weights=mine)
    for number in range(work.rounds):
        begin = time.perf_counter()
        sends, gets = _messages(mine, received, strategy.topology, number)
        # together: NCCL's sends wait for their receives, which would be queued behind them
        messages = dist.batch_isend_irecv([*sends, *gets])
        loss, gradient = gradient_of(work, number)
        for message in messages:
            message.wait()
        size = size_of(len(mine))
        work.link.wait(received=size * len(gets), sent=size * len(sends), since=begin)
        mix(mine, received)
        norm = optimizer.apply(gradient, number)
        work.end(trained, number, loss, norm)
    return trained


def _messages(
    mine: Tensor, received: list[Tensor], topology: str, number: int
) -> tuple[list[dist.P2POp], list[dist.P2POp]]:
    """Weights that a worker sends in a step, and those that it gets."""
    sources, targets = partners(dist.get_rank(), dist.get_world_size(), topology, number)
    sends = [dist.P2POp(dist.isend, mine, target, tag=number) for target in targets]
    gets = [
        dist.P2POp(dist.irecv, values, source, tag=number)
        for values, source in zip(received, sources, strict=True)
    ]
    return sends, gets


def partners(rank: int, world: int, topology: str, number: int) -> tuple[list[int], list[int]]:
    """Whom a worker receives from in a step, and whom it sends to."""
    sources = [neighbours(worker, world, topology, number) for worker in range(world)]
    return list(sources[rank]), [other for other in range(world) if rank in sources[other]]


def mix(mine: Tensor, others: list[Tensor]) -> Tensor:
    """Replace a worker's weights by the mean of its own and its neighbours'."""
    for weights in others:
        mine += weights
    return mine.div_(len(others) + 1)


SEED = 0
"""Draws the peers, alike on all ranks."""


def drawn_peers(worker: int, workers: int, rounds: int) -> list[int]:
    """Whom a worker averages with in each round: any other, all equally likely."""
    draw = np.random.default_rng((SEED, worker))
    others = [other for other in range(workers) if other != worker]
    return [others[int(number)] for number in draw.integers(len(others), size=rounds)]


@dataclass(slots=True)
class Peer:
    """A worker's weights, which averages and updates change one at a time, and what they were."""

    optimizer: FlatOptimizer
    clock: Callable[[], float]
    lock: threading.Lock = field(default_factory=threading.Lock)
    events: list[Event] = field(default_factory=list)

    @property
    def weights(self) -> Tensor:
        """The weights themselves; who reads or writes them holds the lock."""
        return self.optimizer.flat

    def snapshot(self) -> Tensor:
        """A copy of the weights."""
        with self.lock:
            return self.weights.clone()

    def copy(self, replica: FlatReplica, number: int) -> None:
        """Let a replica have the weights that a round's gradient is taken at."""
        with self.lock:
            self._note("copy", number)
            replica.load(self.weights)

    def apply(self, gradient: Tensor, number: int) -> float:
        """Step from wherever the weights are by now; the gradient's norm."""
        with self.lock:
            norm = self.optimizer.apply(gradient, number)
            self._note("apply", number)
            return norm

    def meet(self, other: Tensor, number: int, initiator: int, peer: int) -> None:
        """Take the mean with another's weights; the caller holds the lock."""
        self.weights.add_(other).div_(2)
        self._note("average", number, initiator, peer)

    def _note(self, kind: str, number: int, initiator: int = -1, peer: int = -1) -> None:
        self.events.append(Event(self.clock(), kind, number, initiator, peer))


def asynchronous_gossip(work: Work) -> Trained:
    """Train for so many rounds of each worker, and answer the others until theirs are done.

        worker i   | copy | F        B | join | x_i -= lr g(copy) |
        thread i          | lock i and j: both take (x_i + x_j) / 2 |

    A pair's weights are locked in order of rank, so that no circle of workers can wait for one
    another; (a + b) / 2 is the same number on both sides. Everybody knows the peers that everybody
    will draw, so that a thread for each other worker answers as often as that one asks. What
    happened to a worker's weights is logged under its lock; any order that respects all logs gives
    the same weights.

    Source: Lian et al., Asynchronous Decentralized Parallel Stochastic Gradient Descent (ICML
    2018).
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    peers = drawn_peers(rank, world, work.rounds)
    me = Peer(FlatOptimizer(work.replica.weights, work.config), work.clock)
    trained = Trained(weights=me.weights)
    others = [other for other in range(world) if other != rank]
    with answering(_answer, ((me, other, world, work) for other in others)):
        for number, peer in enumerate(peers):
            me.copy(work.replica, number)
            average = threading.Thread(target=_asked, args=(me, peer, number, work))
            average.start()
            loss, gradient = gradient_of(work, number)
            average.join()
            norm = me.apply(gradient, number)
            work.end(trained, number, loss, norm, me.snapshot)
    trained.events = me.events
    return trained


def _tags(initiator: int) -> tuple[int, int, int]:
    """Tags of a request, of the initiator's weights and of its peer's."""
    return 3 * initiator, 3 * initiator + 1, 3 * initiator + 2


def _asked(me: Peer, peer: int, number: int, work: Work) -> None:
    """Average with a peer, and wait until the weights have passed this rank's link both ways."""
    begin = time.perf_counter()
    _ask(me, peer, number)
    _passed(me, work, begin)


def _passed(me: Peer, work: Work, begin: float) -> None:
    size = size_of(len(me.weights))
    work.link.wait(received=size, sent=size, since=begin)


def _ask(me: Peer, peer: int, number: int) -> None:
    """Average with a peer; the one of lower rank is locked first."""
    rank = dist.get_rank()
    request, mine, theirs = _tags(rank)
    other = torch.empty_like(me.weights)
    asked = torch.tensor([number], device=other.device)
    if rank > peer:
        dist.send(asked, peer, tag=request)
        dist.recv(other, peer, tag=theirs)  # the peer is locked now
        with me.lock:
            dist.send(me.weights, peer, tag=mine)
            me.meet(other, number, rank, peer)
        return
    with me.lock:
        dist.send(asked, peer, tag=request)
        dist.recv(other, peer, tag=theirs)
        dist.send(me.weights, peer, tag=mine)
        me.meet(other, number, rank, peer)


def _answer(me: Peer, initiator: int, world: int, work: Work) -> None:
    """Average with one other worker as often as it draws this one."""
    rank = dist.get_rank()
    request, theirs, mine = _tags(initiator)
    other = torch.empty_like(me.weights)
    number = torch.zeros(1, dtype=torch.int64, device=other.device)
    for _ in range(drawn_peers(initiator, world, work.rounds).count(rank)):
        dist.recv(number, initiator, tag=request)
        begin = time.perf_counter()
        with me.lock:
            dist.send(me.weights, initiator, tag=mine)
            dist.recv(other, initiator, tag=theirs)
            me.meet(other, int(number), initiator, rank)
        _passed(me, work, begin)
