"""Repeats a training of peers in one process: each one's own events, and averages where two met."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from executor.strategies.replays.log import Event
from executor.strategies.replays.replay import Replay, ReplayError
from executor.strategies.replica import FlatOptimizer


def replay_peers(run: Replay, logs: Sequence[Sequence[Event]]) -> list[Tensor]:
    """The final weights of every peer, from what each did to its own, in any order that fits.

    Raises:
        ReplayError: two peers disagree on the order of their averages.
    """
    peers = _Peers(run, logs)
    peers.take_all()
    return [optimizer.weights for optimizer in peers.optimizers]


class _Peers:
    """All peers' weights, and how far each one's log is repeated."""

    def __init__(self, run: Replay, logs: Sequence[Sequence[Event]]) -> None:
        start = run.replica.weights
        self.optimizers = [FlatOptimizer(start.clone(), run.config) for _ in logs]
        self._run = run
        self._logs = logs
        self._copies: dict[int, Tensor] = {}
        self._taken = [0] * len(logs)

    def take_all(self) -> None:
        """Repeat events until no log has one left."""
        while any(map(self._next, range(len(self._logs)))):
            moved = False
            for worker in range(len(self._logs)):
                while self._take(worker):
                    moved = True
            if not moved:
                raise ReplayError("peers disagree on the order of their averages")

    def _take(self, worker: int) -> bool:
        """Repeat a worker's next event, if it has one and its peer has come to it too."""
        event = self._next(worker)
        if event is None:
            return False
        partners = [worker] if event.kind != "average" else [event.initiator, event.peer]
        if event.kind == "average":
            if not all(_same(self._next(partner), event) for partner in partners):
                return False
            self._average(partners)
        elif event.kind == "copy":
            self._copies[worker] = self.optimizers[worker].weights
        else:
            gradient = self._run.gradient(self._copies[worker], worker, event.round)
            self.optimizers[worker].apply(gradient, event.round)
        for partner in partners:
            self._taken[partner] += 1
        return True

    def _average(self, partners: Sequence[int]) -> None:
        first, second = (self.optimizers[partner].flat for partner in partners)
        mean = (first + second) / 2
        first.copy_(mean)
        second.copy_(mean)

    def _next(self, worker: int) -> Event | None:
        log, taken = self._logs[worker], self._taken[worker]
        return log[taken] if taken < len(log) else None


def _same(other: Event | None, event: Event) -> bool:
    """Whether a peer's next event is this average."""
    return other is not None and other[1:] == event[1:]
