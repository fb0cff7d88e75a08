"""A stage of torch's pipeline runtime as the executor wants it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist

from executor.model.repeat import backward_in_two
from executor.parallel.gradients.buckets import GradientBuckets
from executor.pipeline.outbox import Outbox
from executor.pipeline.partner import Partner
from executor.pipeline.tensor_spec import TensorSpec
from executor.torch_internals import pipelining
from parsim.schedule import Action, Kind


class _Buffered(Protocol):
    """What torch notes of a tensor that a stage gets."""

    buffer: torch.Tensor


class TorchStage(pipelining.StageBase):  # type: ignore[misc]  # torch has no types here
    """A stage whose messages are contiguous in memory, as every backend assumes.

    Its gradients go to buckets, if it has any. `split` backwards are in two, I and W, of which W
    writes gradients without running hooks. Full backwards through `fully_shard` scatter their
    gradients each, so that none is held whole, and with `reshard` free the parameters; torch's
    stage would keep both until REDUCE_GRAD.

    A message takes memory from its receipt's begin, or what hands it on, to its use, and at its
    sender until it has arrived: however many micro-batches there are. Torch has a buffer for each
    of them and holds all that was sent until the step ends. `entering` and `leaving` are the shapes
    at this stage's borders.
    """

    stage_index: int
    sent: Outbox
    entering: TensorSpec
    leaving: TensorSpec
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
        if not self.is_first:
            _let_go(self.args_recv_info[fwd_chunk_id])
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: object, **kwargs: object) -> object:
        """Backward of a micro-batch, or its I."""
        _, inputs = self.fwd_cache[bwd_chunk_id]
        with self._beside(Kind.B, bwd_chunk_id):
            result: object = super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        for value in inputs:
            value.grad = None  # it is in `bwd_cache`, from where it is handed on
        if not self.is_last:
            _let_go(self.grad_recv_info[bwd_chunk_id])
        return result

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
        """Forward through what wraps the stage.

        Torch's I takes the output off its graph in place, which no view can be: a norm of sequence
        parallelism at the end of a stage gives one.
        """
        with backward_in_two(self.split):
            output: object = super().forward_maybe_with_nosync(*args, **kwargs)
        if not isinstance(output, torch.Tensor):
            return output
        whole = output.contiguous()
        return whole.clone() if self.split and not self.is_last and whole._is_view() else whole

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Receipts of a micro-batch's input, into memory that is taken now."""
        if not self.is_first:
            received = self.args_recv_info[fwd_chunk_id]
            _make_room(received, self.entering, self.device)
            for info in received:  # 2.11 asks for gradients once, when it makes all buffers
                info.buffer.requires_grad_(self.has_backward)
        receipts: list[dist.P2POp] = super().get_fwd_recv_ops(fwd_chunk_id)
        return receipts

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Receipts of the gradient of its output, likewise."""
        if not self.is_last:
            _make_room(self.grad_recv_info[bwd_chunk_id], self.leaving, self.device)
        receipts: list[dist.P2POp] = super().get_bwd_recv_ops(bwd_chunk_id)
        return receipts

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        """Send a micro-batch's output; nothing is left for torch to send."""
        return self._send(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        """Send the gradient of its input, likewise."""
        return self._send(super().get_bwd_send_ops(bwd_chunk_id))

    def _send(self, messages: list[dist.P2POp]) -> list[dist.P2POp]:
        for message in messages:
            message.tensor = message.tensor.contiguous()
            for work in pipelining.SEND_TOGETHER([message]):
                self.sent.keep(work, message.tensor)
        return []

    def _prepare_forward_infra(self, *args: object, **kwargs: object) -> object:
        made: object = super()._prepare_forward_infra(*args, **kwargs)
        if not self.is_first:
            for received in self.args_recv_info.values():
                _let_go(received)
        return made

    def _prepare_backward_infra(self, *args: object, **kwargs: object) -> object:
        made: object = super()._prepare_backward_infra(*args, **kwargs)
        if not self.is_last:
            for received in self.grad_recv_info.values():
                _let_go(received)
        return made

    # 2.11 warms up with messages between all neighbours, be they on the same rank.
    def _get_init_p2p_neighbors_ops(self) -> list[dist.P2POp]:
        messages: list[dist.P2POp] = super()._get_init_p2p_neighbors_ops()
        return [message for message in messages if message.group_peer != self.group_rank]


def _make_room(received: Iterable[_Buffered], edge: TensorSpec, device: torch.device) -> None:
    """Take the memory that a message is received into."""
    for info in received:
        info.buffer = torch.empty(edge.shape, dtype=edge.dtype, device=device)


def _let_go(received: Iterable[_Buffered]) -> None:
    """Let the memory go that a message was received into; torch wants some tensor there."""
    for info in received:
        info.buffer = info.buffer.new_empty(0)
