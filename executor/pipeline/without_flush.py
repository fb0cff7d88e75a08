"""Runs a pipeline that never flushes on the ranks of a group: PipeDream and PipeDream-2BW.

    rank 0   F0(W0) F1(W0)        B0(W0) W1  F2(W1) B1(W0) W2 ...
    rank 1          F0(W0) B0(W0) W1  F1(W1) B1(W1) W2 ...

The order of actions is 1F1B's, the version of the weights that each micro-batch meets is that of
`parsim.schedule.versions`: the same that parsim prices. An update makes new tensors and binds the
parameters to them; a graph that is still to go backward keeps the old ones, so that stashing costs
no copy. Updates in place would either be refused by autograd or, through `.data`, change the
gradient without a word. A backward runs with its own version bound, so that a stage which
recomputes its activations does so with the weights of its forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from executor.pipeline.runtime import LossFn, TensorSpec
from parsim.errors import PlanError
from parsim.schedule import Kind, build_schedule
from parsim.schedule.versions import Versions

Weights = list[torch.Tensor]
Update = Callable[[Weights, Weights], Weights]
"""Newest weights and a gradient in, the next weights out, as new tensors."""


@dataclass(slots=True)
class Trained:
    """What one rank has at the end.

    `weights` are its newest, `losses` those of its micro-batches (the last stage's alone),
    `most_versions` the versions that it held at once, `used` the version of each micro-batch.
    """

    weights: Weights
    losses: list[float] = field(default_factory=list)
    most_versions: int = 1
    used: dict[int, int] = field(default_factory=dict)


class FlushlessStage:
    """One stage of a pipeline without flush, on this rank of the group."""

    def __init__(
        self,
        versions: Versions,
        module: nn.Module,
        edges: tuple[TensorSpec, TensorSpec],
        group: dist.ProcessGroup,
    ) -> None:
        """Take over a module; `edges` are the shapes of what goes in and out.

        Raises:
            PlanError: the group has another size than the pipeline.
        """
        self.versions, self.module, self.edges, self.group = versions, module, edges, group
        self.stage = dist.get_rank(group)
        if dist.get_world_size(group) != versions.pp:
            raise PlanError(
                f"the group has {dist.get_world_size(group)} ranks, but the pipeline {versions.pp} "
                f"stages; use one rank for each stage"
            )
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.held: dict[int, Weights] = {0: [p.data for p in self.parameters]}
        self.newest = 0
        self.outputs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.sent: list[tuple[dist.Work, torch.Tensor]] = []
        self.gradient: Weights | None = None

    def train(
        self,
        batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
        loss_fn: LossFn,
        update: Update,
    ) -> Trained:
        """Take micro-batches (input, target) one behind the other, updating as the rule says."""
        count = len(batches)
        trained = Trained(weights=[])
        rows = build_schedule("1f1b", pp=self.versions.pp, num_microbatches=count).ranks
        for _, kind, mb in rows[self.stage]:
            if kind == Kind.F:
                batch, target = batches[mb]
                loss = self._forward(mb, batch, target, loss_fn)
                trained.losses += [] if loss is None else [loss]
                trained.used[mb] = self.versions.used(self.stage, mb)
            else:
                self._backward(mb)
                self._update(mb, update)
                self._forget(mb, count)
            trained.most_versions = max(trained.most_versions, len(self.held))
        for work, _ in self.sent:
            work.wait()
        trained.weights = self.held[self.newest]
        return trained

    def _forward(
        self, mb: int, batch: torch.Tensor, target: torch.Tensor, loss_fn: LossFn
    ) -> float | None:
        """Run a forward with the version of the rule; the loss where this is the last stage."""
        given = batch if self.stage == 0 else self._receive(self.edges[0], mb, Kind.F)
        given = given.detach().requires_grad_(self.stage > 0)
        with self._bound(self.versions.used(self.stage, mb)):
            output = self.module(given)
        loss = None
        if self.stage == self.versions.pp - 1:
            output = loss_fn(output, target)
            loss = float(output.detach())
        else:
            self._send(output.detach(), self.stage + 1, mb, Kind.F)
        self.outputs[mb] = (given, output)
        return loss

    def _backward(self, mb: int) -> None:
        """Run a backward through the graph of its forward, which holds that version."""
        given, output = self.outputs.pop(mb)
        last = self.stage == self.versions.pp - 1
        gradient = None if last else self._receive(self.edges[1], mb, Kind.B)
        with self._bound(self.versions.used(self.stage, mb)):
            output.backward(gradient)
        if self.stage > 0 and given.grad is not None:
            self._send(given.grad, self.stage - 1, mb, Kind.B)

    def _update(self, mb: int, update: Update) -> None:
        """Add up the gradient, and make a version where the rule makes one behind this backward."""
        fresh = [p.grad for p in self.parameters if p.grad is not None]
        for parameter in self.parameters:
            parameter.grad = None
        before = self.gradient
        self.gradient = (
            fresh if before is None else [a + b for a, b in zip(before, fresh, strict=True)]
        )
        made = self.versions.made(self.stage, mb)
        if made is None:
            return
        self.held[made] = update(self.held[self.newest], self.gradient)
        self.newest, self.gradient = made, None
        self._bind(made)

    def _forget(self, mb: int, count: int) -> None:
        """Drop the versions that no later micro-batch's backward needs; the newest stays."""
        needed = {self.versions.used(self.stage, later) for later in range(mb + 1, count)}
        for version in [v for v in self.held if v not in needed and v != self.newest]:
            del self.held[version]

    @contextmanager
    def _bound(self, version: int) -> Iterator[None]:
        """The module with the weights of a version."""
        self._bind(version)
        try:
            yield
        finally:
            self._bind(self.newest)

    def _bind(self, version: int) -> None:
        for parameter, weight in zip(self.parameters, self.held[version], strict=True):
            parameter.data = weight

    def _send(self, tensor: torch.Tensor, stage: int, mb: int, kind: Kind) -> None:
        """Send without waiting; the tensor is kept until the end of the run."""
        whole = tensor.contiguous()
        peer = dist.get_global_rank(self.group, stage)
        work = dist.isend(whole, peer, group=self.group, tag=_tag(mb, kind))
        if work is not None:
            self.sent.append((work, whole))
        self.sent = [(work, kept) for work, kept in self.sent if not work.is_completed()]

    def _receive(self, edge: TensorSpec, mb: int, kind: Kind) -> torch.Tensor:
        buffer = torch.empty(edge.shape, dtype=edge.dtype)
        source = self.stage - 1 if kind == Kind.F else self.stage + 1
        peer = dist.get_global_rank(self.group, source)
        dist.recv(buffer, peer, group=self.group, tag=_tag(mb, kind))
        return buffer


def _tag(mb: int, kind: Kind) -> int:
    return 2 * mb + (kind == Kind.B)
