"""Linear maps whose outputs are split over tensor ranks, with the exchanges before them.

    forward   [gather x] -> y_i = x W_i^T + b_i             for all maps i of the same x
    backward  [gather x again], dx = sum_i dy_i W_i -> [sum dx over ranks] beside dW_i = dy_i^T x

With sequence parallelism x holds this rank's tokens: the gather is an all-gather, the sum a
reduce-scatter. Kept for backward is the rank's own x, 1/tp of what is multiplied, and the whole is
gathered a second time (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2). Without it there
is no gather and the sum is an all-reduce.

Keys and values of fewer heads than ranks stand on several of them: W_i of such a head is a copy,
whose gradient is that of this rank's query heads, to be summed over the head's ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from executor.model.factors import copied_part, product_dtype
from executor.torch_internals.distributed import ALL_GATHER, REDUCE_SCATTER


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitColumns:
    """Applies column-split maps of one input (b, s, h), or (b, s / tp, h) if `sequence`."""

    group: dist.ProcessGroup
    sequence: bool

    def __call__(self, x: Tensor, linears: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
        """This rank's part of each output, (b, s, outputs / tp)."""
        dtype = product_dtype(x)
        weights = [copied_part(linear.weight).to(dtype) for linear in linears]
        biases = [None if m.bias is None else copied_part(m.bias).to(dtype) for m in linears]
        outputs: tuple[Tensor, ...] = _Columns.apply(
            x.to(dtype), self.group, self.sequence, *weights, *biases
        )
        return outputs

    def everywhere(self, x: Tensor) -> Tensor:
        """What all ranks need of x, for their own heads: all tokens of it; gradients are summed."""
        shared: Tensor = _Everywhere.apply(x, self.group, self.sequence)
        return shared


class _Everywhere(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup, sequence: bool) -> Tensor:  # noqa: ANN401
        ctx.group, ctx.sequence = group, sequence
        return _Gather(x, group).result() if sequence else x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        mine = grad.clone(memory_format=torch.contiguous_format)
        return _Reduce(mine, ctx.group, sequence=ctx.sequence).result(), None, None


class _Columns(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        x: Tensor,
        group: dist.ProcessGroup,
        sequence: bool,
        *parameters: Tensor | None,
    ) -> tuple[Tensor, ...]:
        half = len(parameters) // 2
        weights, biases = parameters[:half], parameters[half:]
        ctx.group, ctx.sequence = group, sequence
        ctx.save_for_backward(x, *weights)
        whole = _Gather(x, group).result() if sequence else x
        return tuple(F.linear(whole, w, b) for w, b in zip(weights, biases, strict=True))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, *weights = ctx.saved_tensors
        needed = iter(ctx.needs_input_grad[3:])
        by_weight = [next(needed) for _ in weights]
        by_bias = list(needed)
        gather = _Gather(x, ctx.group) if ctx.sequence and any(by_weight) else None
        rows = [grad.flatten(0, -2) for grad in grads]
        reduced = None
        if ctx.needs_input_grad[0]:
            inward = _input_gradient(rows, weights).view(*grads[0].shape[:-1], -1)
            reduced = _Reduce(inward, ctx.group, sequence=ctx.sequence)
        whole = (x if gather is None else gather.result()).flatten(0, -2)
        gradients: list[Tensor | None] = [
            row.t() @ whole if wanted else None for row, wanted in zip(rows, by_weight, strict=True)
        ]
        gradients += [row.sum(0) if w else None for row, w in zip(rows, by_bias, strict=True)]
        return (None if reduced is None else reduced.result(), None, None, *gradients)


def _input_gradient(rows: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """Sum of dy_i W_i without a second buffer."""
    total = rows[0] @ weights[0]
    for row, weight in zip(rows[1:], weights[1:], strict=True):
        total.addmm_(row, weight)
    return total


class _Gather:
    """All ranks' tokens (b, s / tp, h) as (b, s, h); begins at once, `result` waits."""

    def __init__(self, x: Tensor, group: dist.ProcessGroup) -> None:
        self._mine = x.contiguous()
        self._parts = x.new_empty(dist.get_world_size(group), *x.shape)
        out = self._parts.flatten(0, 1)
        self._work = ALL_GATHER(out, self._mine, group=group, async_op=True)

    def result(self) -> Tensor:
        self._work.wait()
        # a copy unless the batch is one sequence: ranks are outermost in what was gathered
        return self._parts.transpose(0, 1).flatten(1, 2)


class _Reduce:
    """The sum over ranks of (b, s, h), in place, or this rank's tokens (b, s / tp, h) of it."""

    def __init__(self, x: Tensor, group: dist.ProcessGroup, *, sequence: bool) -> None:
        self._x = self._out = x
        if not sequence:
            self._work = dist.all_reduce(x, group=group, async_op=True)
            return
        size = dist.get_world_size(group)
        self._x = x.unflatten(1, (size, -1)).transpose(0, 1).flatten(0, 1).contiguous()
        self._out = x.new_empty(x.shape[0], x.shape[1] // size, x.shape[2])
        self._work = REDUCE_SCATTER(self._out, self._x, group=group, async_op=True)

    def result(self) -> Tensor:
        self._work.wait()
        return self._out
