"""Attention of each token to the last few before it, in tiles of queries.

    keys       0 ............................ s
    queries    [tile] sees |--window--|tile|         window + tile - 1 keys, the rest masked

So window + tile of s keys are computed, which is what `Attention.seen` counts: a GPU's kernel works
in tiles too. On a CPU a tile is one call of torch's kernel, whose rows are kept as their
log-sum-exp, and backward adds each tile's gradients up in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from executor.torch_internals.kernels import attend, attend_backward, attend_window
from parsim.model.operators import WINDOW_TILE


def windowed(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V of (b, a, s, d); a query sees itself and window - 1 before it.

    Fewer heads of keys serve equally many neighbouring heads of queries each.
    """
    if q.is_cuda:
        return attend_window(q, k, v, window)
    attended: Tensor = _Windowed.apply(q, k, v, window)
    return attended


class _Windowed(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:  # noqa: ANN401
        sums = torch.promote_types(q.dtype, torch.float32)
        out, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=sums)
        for queries, keys in tiles(q.shape[2], window):
            seen = mask(queries, keys, window, q)
            piece = attend(q[:, :, queries], k[:, :, keys], v[:, :, keys], causal=False, mask=seen)
            out[:, :, queries], lse[:, :, queries] = piece
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.window = window
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        q, k, v, out, lse = ctx.saved_tensors
        by_query = torch.empty_like(q)
        by_key, by_value = torch.zeros_like(k), torch.zeros_like(v)
        for queries, keys in tiles(q.shape[2], ctx.window):
            here, mine, result, sums = (x[:, :, queries] for x in (grad, q, out, lse))
            seen = mask(queries, keys, ctx.window, q)
            theirs = (k[:, :, keys], v[:, :, keys])
            gradients = attend_backward(here, mine, *theirs, result, sums, causal=False, mask=seen)
            by_query[:, :, queries] = gradients[0]
            by_key[:, :, keys].add_(gradients[1])
            by_value[:, :, keys].add_(gradients[2])
        return by_query, by_key, by_value, None


def tiles(tokens: int, window: int) -> Iterator[tuple[slice, slice]]:
    """Each tile of queries with the keys that some of them see."""
    for begin in range(0, tokens, WINDOW_TILE):
        end = min(begin + WINDOW_TILE, tokens)
        yield slice(begin, end), slice(max(begin - window + 1, 0), end)


def mask(queries: slice, keys: slice, window: int, like: Tensor) -> Tensor:
    """What is added to scores (queries, keys): 0, or minus infinity where a key is not seen."""
    if like.is_meta:
        return like.new_empty(queries.stop - queries.start, keys.stop - keys.start)
    rows = torch.arange(queries.start, queries.stop, device=like.device).unsqueeze(1)
    columns = torch.arange(keys.start, keys.stop, device=like.device)
    hidden = (columns > rows) | (columns <= rows - window)
    return torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill_(
        hidden, float("-inf")
    )
