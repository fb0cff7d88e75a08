"""Attention whose values are narrower than queries and keys, by kernels that know one width.

Values are widened by zeros for the kernel's time and never kept so: a row of the output has zeros
where its values have, and their gradients are of no one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from executor.torch_internals.kernels import attend, attend_backward


def narrow_values(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V of (b, a, s, d) and values (b, a, s, w), w < d: (b, a, s, w)."""
    attended: Tensor = _Narrow.apply(q, k, v, causal)
    return attended


class _Narrow(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:  # noqa: ANN401
        wide, lse = attend(q, k, _widened(v, q), causal=causal)
        # tokens outside of heads, as the projection wants them: one tensor is kept for both
        out = wide.transpose(1, 2)[..., : v.shape[-1]].contiguous().transpose(1, 2)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal = causal
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        q, k, v, out, lse = ctx.saved_tensors
        wide = (_widened(x, q) for x in (v, out, grad))
        values, result, back = wide
        by_query, by_key, by_value = attend_backward(
            back, q, k, values, result, lse, causal=ctx.causal
        )
        return by_query, by_key, by_value[..., : v.shape[-1]], None


def _widened(x: Tensor, like: Tensor) -> Tensor:
    return F.pad(x, (0, like.shape[-1] - x.shape[-1]))
