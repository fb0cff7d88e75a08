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
        if self.group is None:
            return nn.functional.batch_norm(
                x, None, None, self.weight, self.bias, training=True, eps=EPSILON
            )
        y: Tensor = _Synchronised.apply(x, self.group)
        if self.weight is None or self.bias is None:
            return y
        return y * _spread(self.weight) + _spread(self.bias)


def synchronise(module: nn.Module, group: dist.ProcessGroup | None) -> None:
    """Let all batch normalisations of a module share their statistics among a group."""
    for inner in module.modules():
        if isinstance(inner, BatchNorm):
            inner.group = group


def _spread(channels: Tensor) -> Tensor:
    return channels[None, :, None, None]


class _Synchronised(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """The normalised values y = (x - mean) r of all ranks' batches, r = 1 / sqrt(var + eps).

    dx = r (dy - mean(dy) - y mean(dy y)), means over the batches of all ranks.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:  # noqa: ANN401
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        count = wide.new_tensor([x.numel() / x.shape[1]])
        var, mean = torch.var_mean(wide, dim=(0, 2, 3), correction=0)
        mine = torch.cat((mean, var, count))
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, mine, group=group)
        means, variances, counts = torch.stack(parts).split([x.shape[1], x.shape[1], 1], dim=1)
        total = counts.sum()
        whole = (means * counts).sum(0) / total
        spread = ((variances + (means - whole) ** 2) * counts).sum(0) / total
        scale = torch.rsqrt(spread + EPSILON)
        y = (wide - _spread(whole)) * _spread(scale)
        ctx.save_for_backward(y, scale, total)
        ctx.group, ctx.dtype = group, x.dtype
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        y, scale, total = ctx.saved_tensors
        wide = grad.to(y.dtype)
        sums = torch.cat((wide.sum((0, 2, 3)), (wide * y).sum((0, 2, 3))))
        dist.all_reduce(sums, group=ctx.group)
        straight, along = (sums / total).chunk(2)
        change = (wide - _spread(straight) - y * _spread(along)) * _spread(scale)
        return change.to(ctx.dtype), None
