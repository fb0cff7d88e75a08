"""Runs pipelines whose stages differ or never flush, a stage a process.

    stage 0 replica 0   F0(W0) F2(W0) B0(W0)          sum  W1  ...  M on replica M mod r
    stage 0 replica 1   F1(W0) F3(W0)        B1(W0)   sum  W1  ...
    stage 1                    F0(W0) B0(W0) W1 F1(W1) B1(W1) W2 ...

Replicas that update late begin a sum behind each backward and take it behind their next one.

Order and versions are those that parsim prices: `parsim.schedule.replicas` says which rank runs
which micro-batch when, `parsim.schedule.versions` with which weights. Where a pipeline flushes,
there is one version, and the gradient of all micro-batches is left to the caller.

A replica may be several tensor-parallel processes. Process j of a wider stage gets what passes
between two stages from process j mod t of the narrower one's t, which is whole on each of them; of
its weights each process holds and updates its part.

A backward runs with its own version of the weights bound, so that a stage which recomputes its
activations does so with the weights of its forward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn

from executor.model.loss import LossFn
from executor.pipeline.outbox import Outbox
from executor.pipeline.replica_sums import ReplicaSums
from executor.pipeline.stage_groups import MicroBatches, StageOrder, Update, Weights
from executor.pipeline.stage_weights import StageWeights
from executor.pipeline.tensor_spec import TensorSpec
from parsim.errors import PlanError
from parsim.schedule import Kind


@dataclass(slots=True)
class Ran:
    """What one rank has at the end of its micro-batches.

    `losses` are those of its micro-batches (the last stage's alone), `most_versions` the versions
    that it held at once, `used` the version of each micro-batch. `gradient` is what no update took:
    that of all micro-batches where the pipeline flushes.
    """

    weights: Weights
    losses: dict[int, float] = field(default_factory=dict)
    most_versions: int = 1
    used: dict[int, int] = field(default_factory=dict)
    gradient: Weights | None = None


class StageRank:
    """One replica of one stage, or a tensor-parallel process of it, on this rank of the group."""

    def __init__(
        self,
        order: StageOrder,
        module: nn.Module,
        edges: tuple[TensorSpec, TensorSpec],
        group: dist.ProcessGroup,
        sharers: dist.ProcessGroup | None = None,
        sums: torch.dtype = torch.float32,
    ) -> None:
        """Take over a module.

        Args:
            order: of all ranks.
            module: this rank's stage.
            edges: the shapes of what goes in and out.
            group: all ranks, stage by stage.
            sharers: the ranks of this stage, where it has several replicas.
            sums: what gradients add up in.

        Raises:
            PlanError: the group has another size than the pipeline.
        """
        replicas = order.replicas
        if dist.get_world_size(group) != len(replicas.rank_of):
            raise PlanError(
                f"the group has {dist.get_world_size(group)} ranks, but the pipeline "
                f"{len(replicas.rank_of)} stages and replicas; use one rank for each"
            )
        self.order, self.module, self.edges, self.group = order, module, edges, group
        self.rank = replicas.rank_of[dist.get_rank(group)]
        self.width = replicas.widths[self.rank]
        self.part = dist.get_rank(group) - replicas.devices(self.rank)[0]
        self.stage = replicas.stage_of[self.rank]
        self.count = replicas.counts[self.stage]
        self.sums = ReplicaSums(self.count, sharers)
        self.weights = StageWeights(module, sums)
        self.outputs: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.sent = Outbox()

    @property
    def last(self) -> bool:
        """Whether this is the last stage, which has the loss."""
        return bool(self.stage == self.order.replicas.stages - 1)

    def run(
        self,
        count: int,
        batches: MicroBatches,
        loss_fn: LossFn,
        update: Update,
        after: Callable[[int, float | None], None] = lambda mb, loss: None,
    ) -> Ran:
        """Take so many micro-batches, fill and drain among them.

        Args:
            count: micro-batches of all replicas of a stage together.
            batches: gives each of them.
            loss_fn: the mean loss of a micro-batch, of output and target.
            update: makes a version from the one before.
            after: called behind each backward and its update, with the loss where it is known.
        """
        self.weights.restart()
        ran = Ran(weights=[])
        for _, kind, mb in self.order.rows(count)[self.rank]:
            if kind == Kind.F:
                loss = self._forward(mb, *batches(mb), loss_fn)
                if loss is not None:
                    ran.losses[mb] = loss
                ran.used[mb] = self.order.used(self.stage, mb)
            else:
                self._backward(mb)
                self._update(mb, count, update)
                ran.most_versions = max(ran.most_versions, self.weights.count)
                after(mb, ran.losses.get(mb))
        self.sent.close()
        ran.weights, ran.gradient = self.weights.newest, self.weights.take_gradient() or None
        return ran

    def _forward(
        self, mb: int, batch: torch.Tensor, target: torch.Tensor, loss_fn: LossFn
    ) -> float | None:
        """Run a forward with the version of the rule; the loss where this is the last stage."""
        given = batch if self.stage == 0 else self._receive(self.edges[0], mb, Kind.F)
        given = given.detach().requires_grad_(self.stage > 0)
        with self.weights.bound(self.order.used(self.stage, mb)):
            output = self.module(given)
        loss = None
        if self.last:
            output = loss_fn(output, target)
            loss = float(output.detach())
        else:
            self._send(output.detach(), self.stage + 1, mb, Kind.F)
        self.outputs[mb] = (given, output)
        return loss

    def _backward(self, mb: int) -> None:
        """Run a backward through the graph of its forward, which holds that version."""
        given, output = self.outputs.pop(mb)
        gradient = None if self.last else self._receive(self.edges[1], mb, Kind.B)
        with self.weights.bound(self.order.used(self.stage, mb)):
            output.backward(gradient)
        if self.stage > 0 and given.grad is not None:
            self._send(given.grad, self.stage - 1, mb, Kind.B)

    def _update(self, mb: int, count: int, update: Update) -> None:
        """Make a version where the rule makes one behind this backward; else gradients add up."""
        made = self.order.made(self.stage, mb)
        if made is None:
            return
        self.sums.begin(made, self.weights.take_gradient())
        more = mb + self.count < count
        for version, gradient in self.sums.take(self.order.lateness(self.stage) if more else 0):
            self.weights.make(version, update, gradient, self._needed(mb, count))

    def _needed(self, mb: int, count: int) -> set[int]:
        """The versions that backwards to come use."""
        mine = range(mb + self.count, count, self.count)
        return {self.order.used(self.stage, later) for later in mine}

    def _send(self, tensor: torch.Tensor, stage: int, mb: int, kind: Kind) -> None:
        """Send without waiting; the tensor is kept until it has arrived."""
        whole = tensor.contiguous()
        for device in self._devices(stage, mb)[self.part :: self.width]:
            peer = dist.get_global_rank(self.group, device)
            work = dist.isend(whole, peer, group=self.group, tag=_tag(mb, kind))
            if work is not None:
                self.sent.keep(work, whole)

    def _receive(self, edge: TensorSpec, mb: int, kind: Kind) -> torch.Tensor:
        buffer = torch.empty(edge.shape, dtype=edge.dtype)
        stage = self.stage - 1 if kind == Kind.F else self.stage + 1
        devices = self._devices(stage, mb)
        peer = dist.get_global_rank(self.group, devices[self.part % len(devices)])
        dist.recv(buffer, peer, group=self.group, tag=_tag(mb, kind))
        return buffer

    def _devices(self, stage: int, mb: int) -> range:
        """The processes of the replica that runs a micro-batch of a stage."""
        replicas = self.order.replicas
        return replicas.devices(replicas.rank(stage, mb))


def _tag(mb: int, kind: Kind) -> int:
    return 2 * mb + (kind == Kind.B)
