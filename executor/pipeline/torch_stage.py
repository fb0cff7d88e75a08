"""A stage of torch's pipeline runtime as the executor wants it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist

from executor.model.repeat import backward_in_two
from executor.parallel.gradients.buckets import GradientBuckets
from executor.pipeline.partner import Partner
from executor.torch_internals import pipelining
from parsim.schedule import Action, Kind


class _Buffered(Protocol):
    """What torch notes of a tensor that a stage gets."""

    buffer: torch.Tensor | None


class TorchStage(pipelining.StageBase):  # type: ignore[misc]  # torch has no types here
    """A stage whose messages are contiguous in memory, as every backend assumes.

    Its gradients go to buckets, if it has any. `split` backwards are in two, I and W, of which W
    writes gradients without running hooks. Full backwards through `fully_shard` scatter their
    gradients each, so that none is held whole, and with `reshard` free the parameters; torch's
    stage would keep both until REDUCE_GRAD. What another stage of this rank hands on is let go when
    it was used; torch keeps it for a step more.
    """

    stage_index: int
    buckets: GradientBuckets | None = None
    partner: Partner | None = None
    split = False
    scatters = False
    reshard = False

    def __init__(self, position: int, depth: int, *args: object, **kwargs: object) -> None:
        self.position, self.depth = position, depth
        super().__init__(*args, **kwargs)

    @property
    def is_first(self) -> bool:
        """Whether the model begins here, of each of its copies."""
        return self.position == 0

    @property
    def is_last(self) -> bool:
        """Whether the model ends here, of each of its copies."""
        return self.position == self.depth - 1

    # between stages s and s + 1 of one rank torch hands results on: not from copy to copy
    def set_local_fwd_input(self, prev_stage_outputs: object, mb_index: int) -> None:
        """Take what the stage before it on this rank gave."""
        if not self.is_first:
            super().set_local_fwd_input(prev_stage_outputs, mb_index)

    def set_local_bwd_input(self, next_stage_bwd_outputs: object, mb_index: int) -> None:
        """Take the gradient of what the stage behind it on this rank was given."""
        if not self.is_last:
            super().set_local_bwd_input(next_stage_bwd_outputs, mb_index)

    def get_local_bwd_output(self, mb_index: int) -> object:
        """The gradient for the stage before it on this rank."""
        return () if self.is_first else super().get_local_bwd_output(mb_index)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: object, **kwargs: object) -> object:
        """Forward of a micro-batch."""
        with self._beside(Kind.F, fwd_chunk_id):
            output: object = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        if not self.is_first and self._is_here(self.stage_index - 1):
            _let_go(self.args_recv_info[fwd_chunk_id])
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: object, **kwargs: object) -> object:
        """Backward of a micro-batch, or its I."""
        _, inputs = self.fwd_cache[bwd_chunk_id]
        with self._beside(Kind.B, bwd_chunk_id):
            result: object = super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        for value in inputs:
            value.grad = None  # it is in `bwd_cache`, from where it is handed on
        if not self.is_last and self._is_here(self.stage_index + 1):
            _let_go(self.grad_recv_info[bwd_chunk_id])
        return result

    def _is_here(self, stage: int) -> bool:
        """Whether a stage is on this rank, so that it hands on tensors and sends none."""
        return bool(self.stage_index_to_group_rank[stage] == self.group_rank)

    def _beside(self, kind: Kind, microbatch: int) -> AbstractContextManager[None]:
        if self.partner is None:
            return nullcontext()
        return self.partner.beside(Action(self.stage_index, kind, microbatch))

    def backward_maybe_with_nosync(
        self, backward_type: str, bwd_kwargs: dict[str, Any], last_backward: bool = False
    ) -> object:
        """Backward with the collectives of what wraps the stage."""
        if not self.scatters:
            return super().backward_maybe_with_nosync(backward_type, bwd_kwargs, last_backward)
        self.submod.set_is_last_backward(False)  # REDUCE_GRAD ends the step
        self.submod.set_reshard_after_backward(self.reshard)
        self.submod.set_requires_gradient_sync(True)
        self.submod.set_requires_all_reduce(last_backward)  # over replicas once
        given = (bwd_kwargs[name] for name in ("stage_output", "output_grads", "input_values"))
        return pipelining.STAGE_BACKWARD(*given), None

    def backward_weight_one_chunk(self, *args: object, **kwargs: object) -> None:
        """W of a micro-batch."""
        number: int = self.stage_index
        if self.is_first:
            self.stage_index = 0  # the only one whose W torch lets do the whole backward
        super().backward_weight_one_chunk(*args, **kwargs)
        self.stage_index = number
        if self.buckets is not None:
            self.buckets.collect()

    def forward_maybe_with_nosync(self, *args: object, **kwargs: object) -> object:
        """Forward through what wraps the stage."""
        with backward_in_two(self.split):
            output: object = super().forward_maybe_with_nosync(*args, **kwargs)
        return output.contiguous() if isinstance(output, torch.Tensor) else output

    def get_bwd_send_ops(self, *args: object, **kwargs: object) -> list[dist.P2POp]:
        """Messages that carry gradients to other ranks."""
        messages: list[dist.P2POp] = super().get_bwd_send_ops(*args, **kwargs)
        for message in messages:
            message.tensor = message.tensor.contiguous()
        return messages

    # 2.11 warms up with messages between all neighbours, be they on the same rank.
    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super()._get_init_p2p_neighbors_ops()
        return [message for message in messages if message.group_peer != self.group_rank]


def _let_go(received: Iterable[_Buffered]) -> None:
    """Hold tensors no longer that are handed on anew in every step."""
    for info in received:
        info.buffer = None
