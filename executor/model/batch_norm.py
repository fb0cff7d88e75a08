"""Batch normalisation over this rank's batch, or over the batches of all replicas together.

    forward    all-gather of each replica's mean, variance and count     (2 C + 1 fp32 values)
    backward   all-reduce of the sums of dy and of dy (x - mean)         (2 C)

What `torch.nn.SyncBatchNorm` does, which runs on GPUs alone; this one runs over gloo too. Neither
keeps running statistics: only training is done here.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from executor.torch_internals.kernels import BATCH_NORM_BACKWARD

EPSILON = 1e-5
"""The default of `torch.nn.BatchNorm2d`."""


class BatchNorm(nn.Module):  # type: ignore[misc]
    """(x - mean) / sqrt(var + eps) weight + bias, over batch, rows and columns.

    `group` are the ranks whose batches count as one, None for this rank's own.
    """

    def __init__(self, channels: int, *, affine: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None
        self.group: dist.ProcessGroup | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (N, C, H, W)."""
        if self.group is not None:
            y: Tensor = _Synchronised.apply(x, self.weight, self.bias, self.group)
            return y
        return nn.functional.batch_norm(
            x, None, None, self.weight, self.bias, training=True, eps=EPSILON
        )


def synchronise(module: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Let all batch normalisations of a module share their statistics among a group."""
    for inner in module.modules():
        if isinstance(inner, BatchNorm):
            inner.group = group


class _Synchronised(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """y = n weight + bias, n = (x - mean) r of all ranks' batches, r = 1 / sqrt(var + eps).

    dx = weight r (dy - mean(dy) - n mean(dy n)), means over the batches of all ranks. Each half is
    torch's own kernel of known statistics, so that the input alone is kept and few passes are made.
    """

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        group: dist.ProcessGroup,
    ) -> Tensor:
        mean, var, total = _of_all(x, group)
        ctx.save_for_backward(x, weight, mean, var, total)
        ctx.group = group
        return _normalised(x, mean, var, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, mean, var, total = ctx.saved_tensors
        known = (weight, mean, var, None, None, False, EPSILON, [True, True, True])
        # as if mean and variance did not depend on x: weight r dy, sum(dy n) and sum(dy)
        inward, along, straight = BATCH_NORM_BACKWARD(grad.contiguous(), x, *known)
        sums = torch.cat((along, straight)).to(var.dtype)
        dist.all_reduce(sums, group=ctx.group)
        mean_along, mean_straight = (sums / total).chunk(2)
        scale = torch.rsqrt(var + EPSILON)
        scale = scale if weight is None else scale * weight
        inward -= _normalised(x, mean, var, scale * mean_along, scale * mean_straight)
        if weight is None:
            return inward, None, None, None
        return inward, along.to(weight.dtype), straight.to(weight.dtype), None


def _of_all(x: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance (C,) over the batches of all ranks, and how many values have each."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    count = wide.new_full((1,), x.numel() / x.shape[1])  # made there: a copy stops a GPU's host
    # of all ways to have both the quickest on CPUs: `var_mean` takes three times as long
    mean, var = torch.batch_norm_update_stats(wide, None, None, 0.0)
    mine = torch.cat((mean, var, count))
    parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, mine, group=group)
    means, variances, counts = torch.stack(parts).split([x.shape[1], x.shape[1], 1], dim=1)
    total = counts.sum()
    mean = (means * counts).sum(0) / total
    return mean, ((variances + (means - mean) ** 2) * counts).sum(0) / total, total


def _normalised(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    return nn.functional.batch_norm(x, mean, var, weight, bias, training=False, eps=EPSILON)
