"""Attention whose scores are changed before their softmax, which no kernel of torch's own does.

    cap      c tanh(x / c)                     Gemma 2 (arXiv:2408.00118), section 2
    slopes   x - slope of the head x distance  ALiBi (Press et al. 2021, arXiv:2108.12409)

In tiles of queries, as `executor.model.attention.window`: rows are kept as their log-sum-exp, and
backward computes each tile's scores again, so that no more is kept than a fused kernel keeps.
Scores are fp32 at least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from executor.model.attention.window import mask, tiles


@dataclass(frozen=True, slots=True)
class Shape:
    """What happens to scores: a cap (0: none), a slope for each head here, a window."""

    cap: float = 0.0
    slopes: Tensor | None = None
    window: int | None = None

    @property
    def changes(self) -> bool:
        """Whether anything but a window does."""
        return bool(self.cap) or self.slopes is not None

    def on(self, device: torch.device) -> Shape:
        """The shape with its slopes on a device: itself where they are there."""
        if self.slopes is None or self.slopes.device == device or device.type == "meta":
            return self
        return replace(self, slopes=self.slopes.to(device))

    def capped(self, scores: Tensor) -> Tensor:
        """Scores below the cap, in place."""
        return scores.div_(self.cap).tanh_().mul_(self.cap) if self.cap else scores

    def bias(self, queries: slice, keys: slice, like: Tensor) -> Tensor:
        """What is added to scores (a, queries, keys) or, without slopes, (queries, keys)."""
        hidden = mask(queries, keys, self.window or keys.stop, like)
        if self.slopes is None or like.is_meta:
            return hidden
        rows = torch.arange(queries.start, queries.stop, device=like.device).unsqueeze(1)
        ahead = torch.arange(keys.start, keys.stop, device=like.device) - rows
        return hidden + self.slopes.to(like.dtype).view(-1, 1, 1) * ahead.to(like.dtype)


PLAIN = Shape()
"""Scores as they are."""


def alibi_slopes(heads: int) -> Tensor:
    """2^(-8i/a) of head i of a, counted from 1; of other counts than powers of 2 some between.

    Those beyond the power of 2 below are every second slope of twice as many heads.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8.0 * i / power) for i in range(1, power + 1)]
    between = [2.0 ** (-4.0 * i / power) for i in range(1, 2 * (heads - power), 2)]
    return torch.tensor(slopes + between, device="cpu")


def shaped(q: Tensor, k: Tensor, v: Tensor, shape: Shape) -> Tensor:
    """softmax(shape(Q K^T / sqrt(d))) V of (b, a, s, d), causal; heads of keys may be fewer."""
    attended: Tensor = _Shaped.apply(q, k, v, shape)
    return attended


class _Shaped(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, shape: Shape) -> Tensor:  # noqa: ANN401
        wide = torch.promote_types(q.dtype, torch.float32)
        out, lse = q.new_empty(*q.shape[:3], v.shape[3]), q.new_empty(q.shape[:3], dtype=wide)
        for queries, keys in tiles(q.shape[2], shape.window or q.shape[2]):
            scores, _ = _scores(q, k, queries, keys, shape)
            lse[:, :, queries] = sums = scores.logsumexp(-1)
            weights = scores.sub_(sums.unsqueeze(-1)).exp_().to(v.dtype)
            out[:, :, queries] = _of_keys(weights, v[:, :, keys])
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.shape = shape
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        q, k, v, out, lse = ctx.saved_tensors
        by_query, by_key, by_value = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for queries, keys in tiles(q.shape[2], ctx.shape.window or q.shape[2]):
            here, mine = grad[:, :, queries], q[:, :, queries]
            scores, slope = _scores(q, k, queries, keys, ctx.shape)
            weights = scores.sub_(lse[:, :, queries].unsqueeze(-1)).exp_()
            by_value[:, :, keys] += _of_queries(weights.to(v.dtype), here, v)
            along = (here * out[:, :, queries]).sum(-1, keepdim=True, dtype=lse.dtype)
            inward = _of_keys(here, v[:, :, keys].transpose(2, 3)).to(lse.dtype)
            inward = inward.sub_(along).mul_(weights)
            inward = (inward if slope is None else inward.mul_(slope)).to(q.dtype)
            factor = 1.0 / math.sqrt(q.shape[-1])
            by_query[:, :, queries] = _of_keys(inward, k[:, :, keys]) * factor
            by_key[:, :, keys] += _of_queries(inward, mine, k) * factor
        return by_query, by_key, by_value, None


def _scores(
    q: Tensor, k: Tensor, queries: slice, keys: slice, shape: Shape
) -> tuple[Tensor, Tensor | None]:
    """Changed scores (b, a, queries, keys) of a tile, and the derivative of a cap."""
    mine = q[:, :, queries] * (1.0 / math.sqrt(q.shape[-1]))
    plain = _of_keys(mine, k[:, :, keys].transpose(2, 3))
    scores = shape.capped(plain.to(torch.promote_types(q.dtype, torch.float32)))
    slope = 1.0 - (scores / shape.cap).square_() if shape.cap else None
    return scores.add_(shape.bias(queries, keys, scores)), slope


def _of_keys(x: Tensor, matrices: Tensor) -> Tensor:
    """Rows (b, a, n, i) times the matrices (b, g, i, j) of their heads' keys: (b, a, n, j)."""
    groups = matrices.shape[1]
    together = x.unflatten(1, (groups, -1)).flatten(2, 3)
    return (together @ matrices).unflatten(2, (x.shape[1] // groups, -1)).flatten(1, 2)


def _of_queries(x: Tensor, rows: Tensor, like: Tensor) -> Tensor:
    """Products (b, g, i, j) of (b, a, n, i) and (b, a, n, j), summed over n.

    Also over the heads that share one of the g heads of keys, which `like` has.
    """
    left, right = (each.unflatten(1, (like.shape[1], -1)).flatten(2, 3) for each in (x, rows))
    return left.transpose(2, 3) @ right
