"""Data parallelism of one stage: how its gradients meet those of its copies.

    zero_stage  one step of a plan without pipeline
    0           DistributedDataParallel, or our buckets where that has no answer (see `buckets`)
    1           our buckets: reduce-scatter, update of one share, gathered by the optimizer
    2           fully_shard, parameters kept gathered from forward to the last backward
    3           fully_shard, parameters gathered for each block and pass (see `fully_shard`)

Under a pipeline stages 0 and 1 use our buckets, sent at REDUCE_GRAD; 2 and 3 are gathered and
reduced at UNSHARD and REDUCE_GRAD. Buckets also add up in fp32 what bf16 parameters have of
gradients, with or without data parallelism, and what is summed with a rank that holds the same
stages (`held_twice`).

Context-parallel ranks are data ranks here: the mesh has them in a data axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from executor.devices.mesh import replica_index
from executor.model.stage import Stage
from executor.parallel.buckets import (
    GradientBuckets,
    Groups,
    axis_group,
    local_gradient,
    local_tensor,
    partial_group,
    sum_flat,
    trainable,
)
from executor.parallel.experts import ExpertPlace
from executor.parallel.fully_shard import shard_fully, take_means
from executor.parallel.precision import (
    apply_autocast,
    gradient_dtype,
    storage_dtype,
    wire_dtype,
)
from executor.parallel.refused import check_parallel
from parsim.plan import Plan
from parsim.plan.record import BUCKET_BYTES

DataKind = Literal["plain", "ddp", "buckets", "fully_shard"]
"""Where averaged gradients come from; `plain` leaves them in `.grad` as backward made them."""

LossFn = Callable[[Tensor, Tensor], Tensor]

MIB = 2**20


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
        """Forget the gradients of the last step."""
        for parameter in self.stage.parameters():
            if self.kind != "ddp":
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.zero_()  # a view of DDP's buckets, which stay: no second copy
        if self.buckets is not None:
            self.buckets.zero()

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
        _finish_partial(self.stage)

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


def apply_data_parallel(
    stage: Stage, plan: Plan, mesh: DeviceMesh, experts: ExpertPlace | None = None
) -> Replica:
    """Wrap a stage, tensor-parallel or not, for the data axes of a mesh.

    `experts` is the place of this rank among those of its experts, where that is not the mesh's.

    Raises:
        PlanError: a combination that would train wrongly, with the reason.
    """
    check_parallel(plan)
    apply_autocast(stage, plan, mesh.device_type)
    kind = data_kind(plan)
    if experts is not None and kind != "fully_shard":
        kind = "buckets"
    module: nn.Module = stage
    buckets = None
    if kind == "fully_shard":
        shard_fully(stage, plan, mesh, experts)
    elif kind == "ddp":
        module = DistributedDataParallel(
            stage,
            process_group=mesh["dp_replicate"].get_group(),
            bucket_cap_mb=(plan.bucket_bytes or BUCKET_BYTES) / MIB,
            gradient_as_bucket_view=True,
            # no_sync skips the bookkeeping of the first backward that a static graph relies on
            static_graph=plan.num_microbatches == 1,
        )
    elif kind == "buckets":
        buckets = _buckets(stage, plan, mesh, None if experts is None else experts.gradients)
    return Replica(
        stage=stage,
        module=module,
        kind=kind,
        plan=plan,
        mesh=mesh,
        buckets=buckets,
        experts=experts,
    )


def data_kind(plan: Plan) -> DataKind:
    """Choose how gradients meet."""
    if plan.zero_stage >= 2:
        return "fully_shard"
    pure = storage_dtype(plan) != torch.float32
    if plan.zero_stage == 1 or pure or plan.copies > 1:
        return "buckets"
    if plan.dp * plan.cp == 1:
        return "plain"
    torch_can = plan.pp == 1 and plan.tp == 1 and plan.overlap_grad_reduce
    torch_can = torch_can and wire_dtype(plan) == torch.float32
    return "ddp" if torch_can else "buckets"


def like_parameter(parameter: nn.Parameter, local: Tensor) -> Tensor:
    """A local tensor as what the parameter is: split over tensor ranks in the same way, or not."""
    if not isinstance(parameter, DTensor):
        return local
    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def whole_tensor(value: Tensor) -> Tensor:
    """The whole of a split tensor; on all its ranks at once."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _buckets(stage: Stage, plan: Plan, mesh: DeviceMesh, experts: Groups | None) -> GradientBuckets:
    parameters = trainable(stage.named_parameters())
    inside = (name for name in parameters if ".experts." in name and experts)
    routed = {name: parameters[name] for name in inside}
    return GradientBuckets(
        {name: parameter for name, parameter in parameters.items() if name not in routed},
        Groups(
            replicate=axis_group(mesh, "dp_replicate"),
            shard=axis_group(mesh, "dp_shard"),
            part=f"tp{mesh['tp'].get_local_rank()}",
        ),
        bucket_bytes=plan.bucket_bytes or BUCKET_BYTES,
        dtype=gradient_dtype(plan),
        wire=wire_dtype(plan),
        # under a pipeline the schedule says when: at REDUCE_GRAD
        overlap=plan.overlap_grad_reduce and plan.pp == 1,
        # both copies of a tied table are then cut into the same shares, which can be summed
        alone=stage.tied_parameters(),
        others=[(routed, experts)] if experts else [],
    )


def _finish_partial(stage: Stage) -> None:
    """Split gradients as their parameters are; partial sums are summed in one collective."""
    split = [
        parameter
        for parameter in stage.parameters()
        if isinstance(parameter.grad, DTensor) and parameter.grad.placements != parameter.placements
    ]
    grads = [local_gradient(parameter, parameter.grad) for parameter in split]
    groups = [partial_group(parameter, parameter.grad) for parameter in split]
    partial = [grad for grad, group in zip(grads, groups, strict=True) if group is not None]
    if partial:
        sum_flat(partial, next(group for group in groups if group is not None))
    for parameter, grad in zip(split, grads, strict=True):
        parameter.grad = like_parameter(parameter, grad)
