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

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import nn

from executor.parallel.gradients.buckets import GradientBuckets
from executor.pipeline.partner import Partner
from executor.torch_internals import pipelining
from parsim.errors import PlanError
from parsim.schedule import Action, Kind, Schedule

LossFn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class TensorSpec(NamedTuple):
    """Shape, for one micro-batch, and dtype of what passes between two stages."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def example(self, *, requires_grad: bool) -> torch.Tensor:
        """A tensor without storage of this shape."""
        wanted = requires_grad and self.dtype.is_floating_point
        return torch.empty(self.shape, dtype=self.dtype, device="meta", requires_grad=wanted)


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
    ) -> None:
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
        if losses is not None:
            losses[:] = [self.by_microbatch[mb].detach() for mb in sorted(self.by_microbatch)]
        self.by_microbatch.clear()


class _Stage(pipelining.StageBase):  # type: ignore[misc]  # torch has no types here
    """A stage whose messages are contiguous in memory, as every backend assumes.

    Its gradients go to buckets, if it has any. W writes gradients without running hooks. Full
    backwards through `fully_shard` scatter their gradients each, so that none is held whole, and
    with `reshard` free the parameters; torch's stage would keep both until REDUCE_GRAD.
    """

    stage_index: int
    buckets: GradientBuckets | None = None
    partner: Partner | None = None
    scatters = False
    reshard = False

    def __init__(self, position: int, depth: int, *args: object, **kwargs: object) -> None:
        self.position, self.depth = position, depth
        super().__init__(*args, **kwargs)

    @property
    def is_first(self) -> bool:
        return self.position == 0

    @property
    def is_last(self) -> bool:
        return self.position == self.depth - 1

    # between stages s and s + 1 of one rank torch hands results on: not from copy to copy
    def set_local_fwd_input(self, prev_stage_outputs: object, mb_index: int) -> None:
        if not self.is_first:
            super().set_local_fwd_input(prev_stage_outputs, mb_index)

    def set_local_bwd_input(self, next_stage_bwd_outputs: object, mb_index: int) -> None:
        if not self.is_last:
            super().set_local_bwd_input(next_stage_bwd_outputs, mb_index)

    def get_local_bwd_output(self, mb_index: int) -> object:
        return () if self.is_first else super().get_local_bwd_output(mb_index)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: object, **kwargs: object) -> object:
        with self._beside(Kind.F, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: object, **kwargs: object) -> object:
        with self._beside(Kind.B, bwd_chunk_id):
            return super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)

    def _beside(self, kind: Kind, microbatch: int) -> AbstractContextManager[None]:
        if self.partner is None:
            return nullcontext()
        return self.partner.beside(Action(self.stage_index, kind, microbatch))

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> object:
        if not self.scatters:
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        self.submod.set_is_last_backward(False)  # REDUCE_GRAD ends the step
        self.submod.set_reshard_after_backward(self.reshard)
        self.submod.set_requires_gradient_sync(True)
        self.submod.set_requires_all_reduce(last_backward)  # over replicas once
        given = (bwd_kwargs[name] for name in ("stage_output", "output_grads", "input_values"))
        return pipelining.STAGE_BACKWARD(*given), None

    def backward_weight_one_chunk(self, *args: object, **kwargs: object) -> None:
        number: int = self.stage_index
        if self.is_first:
            self.stage_index = 0  # the only one whose W torch lets do the whole backward
        super().backward_weight_one_chunk(*args, **kwargs)
        self.stage_index = number
        if self.buckets is not None:
            self.buckets.collect()

    def forward_maybe_with_nosync(self, *args: object, **kwargs: object) -> object:
        output: object = super().forward_maybe_with_nosync(*args, **kwargs)
        return output.contiguous() if isinstance(output, torch.Tensor) else output

    def get_bwd_send_ops(self, *args: object, **kwargs: object) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super().get_bwd_send_ops(*args, **kwargs)
        for message in messages:
            message.tensor = message.tensor.contiguous()
        return messages

    # 2.11 warms up with messages between all neighbours, be they on the same rank.
    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super()._get_init_p2p_neighbors_ops()
        return [message for message in messages if message.group_peer != self.group_rank]


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
    depth = schedule.depth
    built = [
        _Stage(
            index % depth,
            depth,
            stages[index],
            index,
            schedule.num_stages,
            device,
            input_args=(edges[index % depth].example(requires_grad=not schedule.is_first(index)),),
            output_args=(edges[index % depth + 1].example(requires_grad=True),),
            group=group,
        )
        for index in sorted(stages)
    ]
    split = any(action.kind is Kind.W for row in schedule.ranks for action in row)
    for stage in built:
        stage.buckets = buckets.get(stage.stage_index)
        stage.scatters = zero_stage >= 2 and not split
        stage.reshard = zero_stage == 3
    runtime = Runtime(schedule, built, edges, loss_fn)
    rows = {rank: pipelining.to_torch(_renumbered(schedule, rank)) for rank in range(schedule.pp)}
    runtime._prepare_schedule_with_comms(rows, format="compute_comms")
    return runtime


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
