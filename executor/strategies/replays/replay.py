"""Repeats a training with servers in one process, in the order of arrivals that was logged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from executor.strategies.backup_workers import mean_in_order
from executor.strategies.compression import Compressor, unpacked
from executor.strategies.compute import norm_of
from executor.strategies.replays.log import Applied
from executor.strategies.replica import FlatOptimizer, FlatReplica, clip
from executor.strategies.server_messages import Share, shares
from executor.strategies.work import Batches
from executor.training.update_rule import OptimizerConfig
from parsim.errors import ParsimError
from parsim.plan import Plan
from parsim.plan.strategies import AsynchronousServer, ParameterServer, Servers


class ReplayError(ParsimError):
    """A log that no order of events can have left."""


@dataclass(slots=True)
class Replay:
    """What repeats a plan's training: a fresh replica, the batches, the optimizer's settings.

    `servers_config` is the optimizer of a server whose gradients are clipped already.
    """

    plan: Plan
    replica: FlatReplica
    batches: Batches
    config: OptimizerConfig
    servers_config: OptimizerConfig

    def gradient(self, weights: Tensor, worker: int, number: int) -> Tensor:
        """A worker's gradient of a round at these weights."""
        self.replica.load(weights)
        batch, count = self.batches(worker, number), self.plan.microbatches[worker]
        return self.replica.gradient(batch, count)[1].clone()


def replay(run: Replay, applied: Sequence[Applied]) -> Tensor:
    """The final weights of a server's log."""
    strategy = run.plan.strategy
    if isinstance(strategy, ParameterServer):
        return _in_step(run, strategy, applied)
    if isinstance(strategy, AsynchronousServer):
        return _Arrivals(run, strategy, applied).weights()
    raise TypeError(f"strategy {strategy.name} leaves no order of arrivals")


def _in_step(run: Replay, strategy: ParameterServer, applied: Sequence[Applied]) -> Tensor:
    """Every step with the mean of the gradients that counted."""
    server = FlatOptimizer(run.replica.weights, run.config)
    senders = _Senders(run, strategy)
    counted: dict[int, list[int]] = defaultdict(list)
    for entry in applied:
        counted[entry.round].append(entry.worker)
    for number in sorted(counted):
        weights = server.weights
        gradients = {
            worker: unpacked(strategy, message, len(weights))
            for worker in counted[number]
            for message in senders.sent(weights, worker, number, [slice(None)])
        }
        server.apply(mean_in_order(gradients), number)
    return server.weights


@dataclass(slots=True)
class _Senders:
    """The workers, each with what compression kept back of its gradients."""

    run: Replay
    strategy: Servers
    compressors: dict[int, Compressor] = field(default_factory=dict)

    def sent(
        self, weights: Tensor, worker: int, number: int, parts: Sequence[slice]
    ) -> list[Tensor]:
        """The messages of a worker's gradient, one for each part."""
        gradient = self.run.gradient(weights, worker, number)
        if isinstance(self.strategy, AsynchronousServer):
            gradient = clip(gradient, self.run.config.clip, norm_of(gradient))
        compressor = self.compressors.setdefault(worker, Compressor(self.strategy))
        return [compressor.pack(index, gradient[part]) for index, part in enumerate(parts)]


class _Arrivals:
    """Servers that take arrivals in the order of their logs, as far as gradients are known.

    A gradient is known when every server has made the version that its worker had copied there.
    """

    def __init__(
        self, run: Replay, strategy: AsynchronousServer, applied: Sequence[Applied]
    ) -> None:
        start, self.workers = run.replica.weights, run.plan.dp
        self.strategy = strategy
        self.cuts: list[Share] = shares(strategy, len(start), self.workers)
        self.servers = [FlatOptimizer(start[s.part], run.servers_config) for s in self.cuts]
        self.logs = [[e for e in applied if e.server == n] for n in range(len(self.cuts))]
        self.versions = [{0: server.weights} for server in self.servers]
        self.last_use = [{e.version: i for i, e in enumerate(log)} for log in self.logs]
        self.copied = {(e.worker, e.round): [0] * len(self.cuts) for log in self.logs for e in log}
        for entry in applied:
            self.copied[entry.worker, entry.round][entry.server] = entry.version
        self.senders = _Senders(run, strategy)
        self.known: dict[tuple[int, int], list[Tensor]] = {}
        self.done = [0] * len(self.cuts)

    def weights(self) -> Tensor:
        """The final weights of all servers.

        Raises:
            ReplayError: an arrival needs weights that only later ones make.
        """
        while any(done < len(log) for done, log in zip(self.done, self.logs, strict=True)):
            if not sum(self._advance(server) for server in range(len(self.cuts))):
                raise ReplayError("the log has an arrival before the weights that it was made of")
        return torch.cat([server.weights for server in self.servers])

    def _advance(self, server: int) -> int:
        """Apply arrivals of one server until one is not known yet; how many."""
        begin, log = self.done[server], self.logs[server]
        while self.done[server] < len(log) and self._compute(log[self.done[server]]):
            self._apply(server, log[self.done[server]])
        return self.done[server] - begin

    def _compute(self, entry: Applied) -> bool:
        """Whether an arrival's gradient is known, or can be now."""
        key = (entry.worker, entry.round)
        if key in self.known:
            return True
        wanted = self.copied[key]
        if any(version > done for version, done in zip(wanted, self.done, strict=True)):
            return False
        weights = torch.cat([self.versions[n][version] for n, version in enumerate(wanted)])
        parts = [share.part for share in self.cuts]
        self.known[key] = self.senders.sent(weights, entry.worker, entry.round, parts)
        return True

    def _apply(self, server: int, entry: Applied) -> None:
        """One arrival; versions that nobody needs any more are forgotten."""
        message = self.known[entry.worker, entry.round][server]
        number = self.done[server]
        gradient = unpacked(self.strategy, message, self.cuts[server].size)
        self.servers[server].apply(gradient, number // self.workers)
        self.done[server] = number + 1
        versions, last = self.versions[server], self.last_use[server]
        versions[number + 1] = self.servers[server].weights
        for version in [v for v in versions if last.get(v, number) <= number and v <= number]:
            del versions[version]
