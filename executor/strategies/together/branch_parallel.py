"""Branches on devices apart: neighbouring ranks hold one model together, each its paths.

Every rank runs its paths in the order of the placement that the simulator found, forward and then
backward, and hands on what others read. A path's inputs are leaves of autograd, so that its
backward starts from a gradient that is known: what its readers on this rank left in their leaves,
and what other ranks sent, each of which has added up its own readers' first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from executor.devices.all_ranks import gathered
from executor.devices.mesh import subgroup
from executor.model.graph.paths import PathRunner
from executor.model.loss import Batch
from executor.strategies.compute import average, wait
from executor.strategies.link import size_of
from executor.strategies.replays.log import Trained
from executor.strategies.together.rounds import microbatches_of, train_together
from executor.strategies.work import Work
from parsim.errors import PlanError
from parsim.model.graph.record import INPUT, Graph
from parsim.model.paths import FIRST, Path
from parsim.strategy.branch_parallel import Message, PlacedPath, messages_of, placed_paths


def branch_parallel(work: Work) -> Trained:
    """Train the part of the model that is on this rank's device."""
    return train_together(work, Group.of(work))


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks that hold a model together, as one sees it; its `peers` hold the same part."""

    work: Work
    passes: Passes
    together: dist.ProcessGroup | None
    peers: dist.ProcessGroup | None

    @classmethod
    def of(cls, work: Work) -> Group:
        """This rank's group; every rank must call it."""
        sharers, rank = work.plan.strategy.sharers, dist.get_rank()
        ranks = range(dist.get_world_size())
        first = rank - rank % sharers
        together = [list(ranks[start : start + sharers]) for start in ranks[::sharers]]
        peers = [list(ranks[device::sharers]) for device in range(sharers)]
        return cls(
            work=work,
            passes=Passes.of(work, first),
            together=subgroup(together),
            peers=subgroup(peers),
        )

    def gradient(self, number: int) -> tuple[float, Tensor]:
        """Mean loss of the group's samples; the mean gradient of all groups of what is here."""
        work, replica = self.work, self.work.replica
        replica.forget()
        losses = torch.zeros((), dtype=torch.float64)
        for batch in microbatches_of(work, number):
            losses += self.passes.run(batch, number, 1.0 / work.plan.num_microbatches)
        dist.all_reduce(losses, group=self.together)
        gradient = replica.summed
        average(gradient, self.peers)
        work.link.wait(received=size_of(len(gradient)) * (dist.get_world_size(self.peers) > 1))
        return float(losses), gradient

    def norm(self, gradient: Tensor) -> Tensor:
        """The norm of the whole gradient, of which each rank of a group has a part."""
        squares = torch.linalg.vector_norm(gradient).square()
        dist.all_reduce(squares, group=self.together)
        return squares.sqrt()

    def named(self, gradient: Tensor) -> dict[str, Tensor] | None:
        """The gradients of all parts of the model on rank 0; every rank must call it."""
        # copies: a part of a vector would be sent with all of it
        mine = {name: part.clone() for name, part in self.work.replica.named(gradient).items()}
        parts = gathered(mine)
        if dist.get_rank():
            return None
        return {name: part for named in parts for name, part in named.items()}


@dataclass(slots=True)
class Passes:
    """Forwards and backwards of the paths on this rank, whose group begins with rank `first`."""

    work: Work
    runner: PathRunner
    paths: Sequence[PlacedPath]
    order: tuple[int, ...]
    first: int
    device: int
    sent: dict[int, list[tuple[int, Message]]] = field(default_factory=dict)
    read: dict[tuple[int, int], tuple[int, Message]] = field(default_factory=dict)

    @classmethod
    def of(cls, work: Work, first: int) -> Passes:
        """The passes of this rank: what it sends, and what it gets, by path."""
        graph, placement = work.replica.spec, work.placement
        if placement is None or not isinstance(graph, Graph):
            raise PlanError("strategy branch_parallel needs a graph whose paths have places")
        real: tuple[Path, ...] = placement.paths
        paths = placed_paths(real, placement.devices)
        runner = PathRunner(graph, real, work.replica.model)
        device = dist.get_rank() - first
        passes = cls(work, runner, paths, placement.order, first, device)
        for index, message in enumerate(messages_of(paths, placement.order)):
            passes.sent.setdefault(message.path, []).append((index, message))
            passes.read[message.path, message.target] = (index, message)
        return passes

    def run(self, batch: Batch, number: int, share: float) -> float:
        """Forward and backward of a micro-batch, a share of the batch; its part of the loss."""
        mine = [path for path in self.order if self.paths[path].device == self.device]
        state = _State(self, batch, number, share)
        for path in mine:
            state.forward(path)
        for path in reversed(mine):
            state.backward(path)
        for message, _ in state.under_way:  # whose values live until they have left
            message.wait()
        return state.loss


class _State:
    """Outputs and leaves of one micro-batch, and messages under way."""

    def __init__(self, passes: Passes, batch: Batch, number: int, share: float) -> None:
        self.passes, self.number, self.share = passes, number, share
        self.inputs, self.targets = batch
        self.outputs: dict[int, Tensor] = {}
        self.leaves: dict[int, dict[int, Tensor]] = {}
        self.copies: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}
        self.under_way: list[tuple[dist.Work, Tensor]] = []
        self.loss = 0.0

    def forward(self, path: int) -> None:
        """Run a path, and hand on what it made."""
        passes = self.passes
        read = {FIRST: self.inputs}
        for source in passes.paths[path].takes:
            if source != FIRST:
                read[source] = self._leaf(source)
        self.leaves[path] = {source: leaf for source, leaf in read.items() if source != FIRST}
        names = {INPUT if n == FIRST else passes.runner.last(n): leaf for n, leaf in read.items()}
        begin = time.perf_counter()
        self.outputs[path] = passes.runner.run(path, names, self.targets)
        self._waited(begin)
        for index, message in passes.sent.get(path, ()):
            self._send(self.outputs[path].detach(), message.target, 2 * index)

    def backward(self, path: int) -> None:
        """Go back through a path, and hand on the gradients of what it read."""
        output = self.outputs.pop(path)
        gradient = self._gradient(path, output)
        leaves = self.leaves.pop(path)
        begin = time.perf_counter()
        if gradient is not None and output.requires_grad:
            output.backward(gradient)
        self._waited(begin)
        for source, leaf in leaves.items():
            if leaf.requires_grad:
                self._add(source, torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)
            self._returned(source, path)

    def _returned(self, source: int, path: int) -> None:
        """Send the gradient of what came from elsewhere, behind its first reader's backward."""
        passes = self.passes
        if (source, passes.device) not in passes.read or not passes.paths[source].asks:
            return
        index, message = passes.read[source, passes.device]
        if message.readers[0] == path:
            self._send(self.gradients.pop(source), message.source, 2 * index + 1)

    def _leaf(self, source: int) -> Tensor:
        """What a path reads: of this rank, or a copy of what another one sent, got once."""
        passes = self.passes
        if passes.paths[source].device == passes.device:
            value = self.outputs[source].detach()
        else:
            if source not in self.copies:
                index, message = passes.read[source, passes.device]
                shape = passes.runner.shape(source, len(self.inputs))
                self.copies[source] = self._received(shape, message.source, 2 * index)
            value = self.copies[source].detach()
        return value.requires_grad_(passes.paths[source].asks)

    def _gradient(self, path: int, output: Tensor) -> Tensor | None:
        """The gradient of a path's output; None where nobody asks for it."""
        passes = self.passes
        if path == passes.runner.final:
            self.loss = float(output.detach()) * self.share
            return torch.full_like(output, self.share)
        if passes.paths[path].asks:
            for index, message in passes.sent.get(path, ()):
                shape = tuple(output.shape)
                self._add(path, self._received(shape, message.target, 2 * index + 1))
        return self.gradients.pop(path, None)

    def _add(self, path: int, gradient: Tensor) -> None:
        known = self.gradients.get(path)
        self.gradients[path] = gradient if known is None else known + gradient

    def _send(self, value: Tensor, device: int, tag: int) -> None:
        whole = value.contiguous()
        work = dist.isend(whole, self.passes.first + device, tag=tag)
        self.under_way.append((work, whole))

    def _received(self, shape: tuple[int, ...], device: int, tag: int) -> Tensor:
        value = torch.empty(shape)
        dist.recv(value, self.passes.first + device, tag=tag)
        self.passes.work.link.wait(received=size_of(value.numel()))
        return value

    def _waited(self, begin: float) -> None:
        """Make a slow rank slow."""
        wait(self.passes.work, dist.get_rank(), self.number, time.perf_counter() - begin)
