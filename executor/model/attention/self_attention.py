"""Self-attention: separate projections, rotary positions, a fused or a spelled-out core.

Shapes: b sequences, s tokens, a heads, d head size. Head counts come from the width of what the
projections give, so that the same module runs on a tensor-parallel rank's share of the heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from executor.model.attention.rotary import Rotary, halves_apart, rotary_dim
from executor.model.attention.shaped import PLAIN, Shape, alibi_slopes, shaped
from executor.model.attention.window import windowed
from executor.model.norms import rms_norm
from executor.model.offload import HostLayer, repeated
from executor.torch_internals.kernels import attend, attend_backward
from parsim.model.config.writer import DROPOUT
from parsim.model.transformer import TransformerSpec
from parsim.plan import Recompute

FLASH = (torch.float16, torch.bfloat16)
"""What a GPU's flash kernel takes; gradients are verified in wider dtypes too."""


def narrow_values(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V of (b, a, s, d) and values (b, a, s, w), w < d: (b, a, s, w).

    Values are widened by zeros for the kernel's time and never kept so: a row of the output has
    zeros where its values have, and their gradients are of no one.
    """
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


Columns = Callable[[Tensor, Sequence[nn.Linear]], tuple[Tensor, ...]]
"""Applies linear maps that share their input; tensor parallelism puts its own in place."""


Across = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Attends to tokens of other ranks too; context parallelism puts its own in place."""


def apart(x: Tensor, linears: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """Each linear map of the same input."""
    return tuple(linear(x) for linear in linears)


class Core(nn.Module):  # type: ignore[misc]
    """softmax(Q K^T / sqrt(d)) V of (b, a, s, d), without parameters.

    A module of its own so that it can be timed, recomputed or replaced. Each key and value head
    serves a / kv_heads neighbouring query heads. With a `window` a query sees the last tokens only,
    itself among them; what else a `shape` does to scores no kernel of torch's does.
    """

    def __init__(self, *, fused: bool, causal: bool, dropout: float, shape: Shape = PLAIN) -> None:
        super().__init__()
        self.shape = shape
        self.window = shape.window
        self.fused = fused
        self.causal = causal
        self.dropout = dropout
        self.across: Across | None = None

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend; the result has the shape of `q`, and the width of `v`."""
        if self.across is not None:
            return self.across(q, k, v)
        return self.attend(q, k, v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to these tokens alone."""
        if self.shape.changes:
            self.shape = self.shape.on(q.device)  # copied once
            return shaped(q, k, v, self.shape)
        return self._fused(q, k, v) if self.fused else self._unfused(q, k, v)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        wide = q.is_cuda and q.dtype not in FLASH
        if self.window is not None:
            return self._unfused(q, k, v) if wide else windowed(q, k, v, self.window)
        if wide:
            # no fused kernel of CUDA shares keys in fp32: torch would write all scores out
            k, v = _for_each_query_head(q, k, v)
        elif v.shape[-1] < q.shape[-1] and not q.is_meta:
            return narrow_values(q, k, v, causal=self.causal)
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
            enable_gqa=q.shape[1] != k.shape[1],
        )

    def _unfused(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        k, v = _for_each_query_head(q, k, v)
        # q is scaled, not the scores: s x d values instead of s x s
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
        if self.causal:
            square = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
            hidden = square.triu(1)
            if self.window is not None:
                hidden |= square.tril(-self.window)
            scores = scores.masked_fill_(hidden, -math.inf)
        weights = F.dropout(scores.softmax(dim=-1), self.dropout, self.training)
        return weights @ v


def _for_each_query_head(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values (b, kv_heads, s, d) repeated for the neighbouring heads that they serve."""
    group = q.shape[1] // k.shape[1]
    if group == 1:
        return k, v
    return k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)


class HeadNorm(nn.Module):  # type: ignore[misc]
    """RMS norm over each head, with one weight for all of them, which an offset may be added to."""

    def __init__(self, head_dim: int, epsilon: float, offset: bool = False) -> None:
        super().__init__()
        self.offset = float(offset)
        self.weight = nn.Parameter(torch.empty(head_dim))
        self.epsilon = epsilon
        self.repeated: Callable[[Tensor], Tensor] = itself

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (.., d)."""
        weight = self.repeated(self.weight)
        weight = weight + self.offset if self.offset else weight
        return rms_norm(x, weight, self.epsilon).to(x.dtype)  # what a flash kernel takes


def itself(parameter: Tensor) -> Tensor:
    """A parameter that this rank alone uses; tensor parallelism puts its own in place."""
    return parameter


def make_head_norm(spec: TransformerSpec) -> HeadNorm | None:
    """Return the norm of each head's queries or keys, where the spec has one."""
    if not spec.qk_norm:
        return None
    return HeadNorm(spec.head_dim, spec.norm_epsilon, spec.offset_norms)


def make_shape(spec: TransformerSpec, window: int | None) -> Shape:
    """What a layer does to its scores."""
    slopes = alibi_slopes(spec.num_attention_heads) if spec.alibi else None
    return Shape(cap=spec.attention_cap, slopes=slopes, window=window)


class Attention(nn.Module):  # type: ignore[misc]
    """Projections q, k, v around a core, and the projection back to the hidden width."""

    def __init__(
        self,
        spec: TransformerSpec,
        *,
        rotary: Rotary | None,
        recompute: Recompute,
        window: int | None = None,
    ) -> None:
        super().__init__()
        h, d = spec.hidden_size, spec.head_dim
        q_width, kv_width = spec.num_attention_heads * d, spec.num_key_value_heads * d
        self.head_dim = d
        self.q = nn.Linear(h, q_width, bias=spec.qkv_bias)
        self.k = nn.Linear(h, kv_width, bias=spec.qkv_bias)
        self.v = nn.Linear(h, kv_width, bias=spec.qkv_bias)
        self.core = Core(
            fused=spec.fused_attention,
            causal=spec.causal,
            dropout=DROPOUT if spec.dropout else 0.0,
            shape=make_shape(spec, window),
        )
        self.projection = nn.Linear(q_width, h, bias=spec.projection_bias)
        self.columns: Columns = apart
        self.q_norm, self.k_norm = (make_head_norm(spec) for _ in range(2))
        self.scale = spec.query_scale
        self.turning, self.interleaved = rotary_dim(spec), spec.rope_interleaved
        self.rotary = rotary
        self.recompute = recompute
        self.host: HostLayer | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, s, h) to (b, s, h); selective recomputation repeats the core in backward."""
        q, k, v = map(self._heads, self.columns(x, (self.q, self.k, self.v)))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = self._turned(q), self._turned(k)
        q = q if self.scale == 1.0 else q * self.scale
        if self.recompute is Recompute.SELECTIVE and self.training:
            mixed = repeated(self.core, q, k, v, host=self.host)
        else:
            mixed = self.core(q, k, v)
        return self.projection(mixed.transpose(1, 2).flatten(2))

    def _turned(self, x: Tensor) -> Tensor:
        """Heads (b, a, s, d), the rotary part of each turned by its place."""
        if self.rotary is None:
            return x
        part = x[..., : self.turning]
        turned = self.rotary.rotate(halves_apart(part) if self.interleaved else part)
        rest = x[..., self.turning :]
        return torch.cat((turned, rest), dim=-1) if rest.shape[-1] else turned

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
