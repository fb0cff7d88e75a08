"""One stage on this rank with its data parallelism: a step's backwards, and gradients behind them.

Context-parallel ranks are data ranks here: the mesh has them in a data axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from executor.devices.mesh import replica_index
from executor.model.factors import local_tensor
from executor.model.loss import LossFn
from executor.model.stage import Stage
from executor.parallel.experts import ExpertPlace
from executor.parallel.fully_shard import take_means
from executor.parallel.gradients.buckets import GradientBuckets
from executor.parallel.gradients.layout import trainable
from executor.parallel.gradients.split import finish_partial, like_parameter
from parsim.plan import Plan

DataKind = Literal["plain", "ddp", "buckets", "fully_shard"]
"""Where averaged gradients come from; `plain` leaves them in `.grad` as backward made them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One stage on this rank, wrapped for its data parallelism.

    `module` is what is called (in a pipeline: what the runner is given), `stage` what holds the
    parameters under their global names. Per step: `zero_grad`, a backward for each micro-batch
    inside `microbatch`, `finish`, and then an optimizer (executor/training/optimizer.py).
    """

    stage: Stage
    module: nn.Module
    kind: DataKind
    plan: Plan
    mesh: DeviceMesh
    buckets: GradientBuckets | None = None
    experts: ExpertPlace | None = None

    def zero_grad(self) -> None:
        """Forget the gradients of the last step.

        Those of DDP are views of its buckets, which stay. Of one micro-batch each gradient is
        scaled as it is copied there, 8 bytes a parameter; zeroed first, it would be added and then
        scaled, 24. Several micro-batches are summed in the buckets, or all would stand twice.
        """
        summed_there = self.kind == "ddp" and self.plan.num_microbatches > 1
        for parameter in self.stage.parameters():
            if summed_there and parameter.grad is not None:
                parameter.grad.zero_()
            else:
                parameter.grad = None
        if self.buckets is not None:
            self.buckets.forget()

    def microbatch(self, *, last: bool) -> AbstractContextManager[Any]:
        """What forward and backward of a micro-batch run inside, `last` of its step or not."""
        if self.kind == "ddp":
            return nullcontext() if last else self.module.no_sync()
        if self.buckets is not None:
            self.buckets.last_backward = last
        elif self.kind == "fully_shard":
            # scattered in every backward, so that only a share of the gradients is ever held; the
            # sum over dp_replicate is taken once
            self.stage.set_is_last_backward(last)
            self.stage.set_requires_all_reduce(last)
            self.stage.set_reshard_after_backward(last or self.plan.zero_stage == 3)
        return nullcontext()

    def accumulate(self, tokens: Tensor, targets: Tensor, loss_fn: LossFn) -> list[Tensor]:
        """Forward and backward of all micro-batches of a plan without pipeline; their losses.

        Gradients are means over the micro-batches of all replicas, be there equally many or not:
        each weighs one over their number, and replicas are averaged.
        """
        counts = self.plan.microbatches
        count = counts[replica_index(self.plan, dist.get_rank())]
        mean = sum(counts) / len(counts)
        losses = []
        pairs = zip(tokens.chunk(count), targets.chunk(count), strict=True)
        for index, (inputs, wanted) in enumerate(pairs):
            with self.microbatch(last=index == count - 1):
                loss = loss_fn(self.module(inputs), wanted)
                (loss / mean).backward()
            losses.append(loss.detach())
        self.finish()
        return losses

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def losses(self, tokens: Tensor, targets: Tensor, loss_fn: LossFn) -> list[Tensor]:
        """Losses of the micro-batches of a plan without pipeline, by forwards alone."""
        count = self.plan.microbatches[replica_index(self.plan, dist.get_rank())]
        pairs = zip(tokens.chunk(count), targets.chunk(count), strict=True)
        return [loss_fn(self.stage(inputs), wanted) for inputs, wanted in pairs]

    def reshard(self) -> None:
        """Let gathered parameters go that no backward will."""
        if self.kind == "fully_shard":
            for module in self.stage.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        """Complete the gradients after the last backward of a step."""
        if self.buckets is not None:
            self.buckets.finish()
            return
        if self.kind == "fully_shard" and self.experts is not None:
            take_means(self.stage, self.experts)
        finish_partial(self.stage)

    def held_gradients(self) -> list[Tensor]:
        """What this rank keeps of the averaged gradients, in place; zeros where there are none."""
        if self.buckets is not None:
            return [bucket.flat[bucket.share] for bucket in self.buckets.buckets]
        for parameter in trainable(self.stage.named_parameters()).values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [local_tensor(p.grad) for p in self.stage.parameters() if p.grad is not None]

    def tied_gradients(self) -> list[Tensor]:
        """What this rank has of the gradient of a table that another stage has too, in place."""
        gradients = []
        for parameter in self.stage.tied_parameters():
            if self.buckets is not None:
                gradients.append(self.buckets.share(parameter))
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(local_tensor(parameter.grad))
        return gradients

    def gradients(self) -> Iterator[tuple[str, nn.Parameter, Tensor]]:
        """Each parameter with its averaged gradient, whole over data ranks or a DTensor.

        On every rank at once, after `finish`; ZeRO-1 gathers its shares for it.
        """
        if self.buckets is None:
            for name, parameter in trainable(self.stage.named_parameters()).items():
                if parameter.grad is not None:
                    yield name, parameter, parameter.grad.detach()
            return
        for name, parameter, view in self.buckets.whole():
            yield name, parameter, like_parameter(parameter, view)
