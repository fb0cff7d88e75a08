"""Torch's interpreter of action lists, fitted to run any legal one.

What is ours: losses are kept by micro-batch instead of by order of arrival; the loss is divided
by the number of micro-batches instead of the gradients afterwards, so that a list without
REDUCE_GRAD is right too; messages are made contiguous; every stage's output is held against the
shape that its receiver expects; logits are let go when their loss is known; `fully_shard` scatters
gradients in every full backward.

Torch knows one copy of a model. Of a schedule with two, each copy counts its own micro-batches from
0, and its first and last stage stand apart from the other copy's though their numbers follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from executor.model.loss import LossFn
from executor.parallel.gradients.buckets import GradientBuckets
from executor.pipeline.outbox import Outbox
from executor.pipeline.partner import Partner
from executor.pipeline.tensor_spec import TensorSpec
from executor.pipeline.torch_stage import TorchStage
from executor.torch_internals import pipelining
from parsim.errors import PlanError
from parsim.schedule import Action, Kind, Schedule


class StageLike(Protocol):
    """What is used of torch's stages here."""

    stage_index: int
    is_last: bool
    partner: Partner | None
    fwd_cache: dict[int, tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]]
    """Outputs and inputs of each microbatch from forward to backward."""


class Runtime(pipelining.RuntimeBase):  # type: ignore[misc]  # torch has no types here
    """Torch's runtime with losses by micro-batch; torch keeps them by order of arrival."""

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[StageLike],
        edges: tuple[TensorSpec, ...],
        loss_fn: LossFn,
        sent: Outbox,
    ) -> None:
        self.sent = sent
        self.by_microbatch: dict[int, torch.Tensor] = {}
        self.ours = stages
        self.edges, self.depth = edges, schedule.depth
        self.together = schedule.num_microbatches
        each = schedule.num_microbatches // schedule.copies
        super().__init__(stages, each, loss_fn=loss_fn, scale_grads=False)

    def share_with(self, partner: Partner) -> None:
        """Let a partner keep activations of this rank's stages."""
        for stage in self.ours:
            stage.partner = partner

    # 2.13 has one argument more than 2.11 behind mb_index.
    def _maybe_compute_loss(
        self,
        stage: StageLike,
        output: torch.Tensor,
        target_mbs: list[torch.Tensor],
        mb_index: int,
        *_: object,
        **__: object,
    ) -> None:
        depth = stage.stage_index % self.depth
        check_output(stage.stage_index, output, self.edges[depth + 1])
        if stage.is_last:
            self.by_microbatch[mb_index] = self._loss_fn(output, target_mbs[mb_index])
            # backward starts from the loss: without this the logits would be kept until then
            stage.fwd_cache[mb_index] = ((), stage.fwd_cache[mb_index][1])

    def _maybe_get_loss(self, stage: StageLike, mb_index: int) -> torch.Tensor | None:
        if not stage.is_last:
            return None
        # I keeps what it passes through for W: the loss must not hold it until the step ends
        loss = self.by_microbatch[mb_index]
        self.by_microbatch[mb_index] = loss.detach()
        return loss / self.together

    def _update_losses(self, stages: object, losses: list[torch.Tensor] | None) -> None:
        del stages
        self.sent.close()  # the last thing that a step does
        if losses is not None:
            losses[:] = [self.by_microbatch[mb].detach() for mb in sorted(self.by_microbatch)]
        self.by_microbatch.clear()


def build_runtime(
    schedule: Schedule,
    stages: Mapping[int, nn.Module],
    edges: tuple[TensorSpec, ...],
    loss_fn: LossFn,
    group: dist.ProcessGroup,
    device: torch.device,
    buckets: Mapping[int, GradientBuckets],
    zero_stage: int,
) -> Runtime:
    """Torch's runtime, loaded with the lowered schedule; shapes are given, never inferred.

    Inference would run the modules forward and backward once, which DistributedDataParallel
    does not survive.
    """
    built = [
        _torch_stage(schedule, index, stages[index], edges, group, device)
        for index in sorted(stages)
    ]
    outbox = Outbox(asks=dist.get_backend(group) != "gloo")
    split = any(action.kind is Kind.W for row in schedule.ranks for action in row)
    for stage in built:
        stage.buckets, stage.sent = buckets.get(stage.stage_index), outbox
        stage.entering, stage.leaving = edges[stage.position], edges[stage.position + 1]
        stage.split, stage.reshard = split, zero_stage == 3
        stage.scatters = zero_stage >= 2 and not split
    runtime = Runtime(schedule, built, edges, loss_fn, outbox)
    rows = {rank: pipelining.to_torch(_renumbered(schedule, rank)) for rank in range(schedule.pp)}
    runtime._prepare_schedule_with_comms(rows, format="compute_comms")
    return runtime


def _torch_stage(
    schedule: Schedule,
    index: int,
    module: nn.Module,
    edges: tuple[TensorSpec, ...],
    group: dist.ProcessGroup,
    device: torch.device,
) -> TorchStage:
    """Torch's stage of a module, with the shapes that enter and leave it."""
    position = index % schedule.depth
    return TorchStage(
        position,
        schedule.depth,
        module,
        index,
        schedule.num_stages,
        device,
        input_args=(edges[position].example(requires_grad=not schedule.is_first(index)),),
        output_args=(edges[position + 1].example(requires_grad=True),),
        group=group,
    )


def _renumbered(schedule: Schedule, rank: int) -> Iterator[Action]:
    """A rank's actions with the micro-batches of each copy of the model counted from 0."""
    for action in schedule.ranks[rank]:
        first = schedule.microbatches_of(action.stage).start
        whole = action.microbatch < 0  # a whole stage's
        yield action if whole else action._replace(microbatch=action.microbatch - first)


_FORWARD = (Kind.F, Kind.SEND_F, Kind.RECV_F, Kind.UNSHARD)


def keep_forwards(runtime: Runtime) -> None:
    """Leave backwards and what belongs to them out of a loaded schedule.

    What is left keeps its order on every rank, so it ends too. Torch takes only whole schedules.
    """
    rows = runtime.pipeline_order_with_comms
    runtime.pipeline_order_with_comms = {rank: list(_forwards(row)) for rank, row in rows.items()}


def _forwards(row: Sequence[Any]) -> Iterator[Any]:
    """The forwards of a rank; a stage that is sharded is gathered once and let go at the end."""
    kinds = {pipelining.TorchKind(kind.name) for kind in _FORWARD}
    unshard, gathered = pipelining.TorchKind(Kind.UNSHARD.name), dict[int, None]()
    for action in row:
        again = action.computation_type == unshard and action.stage_index in gathered
        if action.computation_type in kinds and not again:
            yield action
        if action.computation_type == unshard:
            gathered[action.stage_index] = None
    yield from pipelining.to_torch(Action(stage, Kind.RESHARD, -1) for stage in gathered)


def check_output(stage: int, output: object, edge: TensorSpec) -> None:
    """Refuse an output that its receiver has no buffer for; sizes are not compared on the way."""
    if not isinstance(output, torch.Tensor):
        raise PlanError(
            f"stage {stage} returns {type(output).__name__}; allowed: one tensor, because a "
            "pipeline stage hands one tensor to the next"
        )
    if (tuple(output.shape), output.dtype) != (tuple(edge.shape), edge.dtype):
        raise PlanError(
            f"stage {stage} returns {tuple(output.shape)} {output.dtype}, but edge {stage + 1} "
            f"promises {tuple(edge.shape)} {edge.dtype}"
        )
