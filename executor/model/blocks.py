"""The parts of a transformer as torch modules: embedding, block, head.

Each has the parameters and matrix products that `parsim.model.build_transformer` counts for the
same spec. What a spec does not hold is the same for all families: the dropout probability.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from executor.model.attention.latent import LatentAttention
from executor.model.attention.rotary import Rotary
from executor.model.attention.self_attention import Attention, Columns, apart
from executor.model.mixture.experts import WHOLE, Mixture, Share
from executor.model.norms import activation, make_norm, make_norm_after
from executor.model.offload import HostLayer, repeated
from parsim.model.config.writer import DROPOUT
from parsim.model.transformer import TransformerSpec
from parsim.plan import Recompute


class Embedding(nn.Module):  # type: ignore[misc]
    """Token table, plus learned positions, token types and a norm where the family has them."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        h = spec.hidden_size
        self.token = nn.Embedding(spec.vocab_rows, h)
        self.positions = nn.Embedding(spec.positions, h) if spec.positions else None
        self.token_types = nn.Embedding(spec.token_types, h) if spec.token_types else None
        self.norm = make_norm(spec) if spec.post_norm or spec.embedding_norm else None
        self.scale, self.first = spec.embedding_scale, spec.first_position
        self.dropout = make_dropout(spec)
        self.places: Tensor | None = None
        """Places of the tokens in their sequence, where these are not 0, 1, 2, ..."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (b, s) to hidden states (b, s, h)."""
        x = scaled(self.token(tokens), self.scale)
        if self.positions is not None:
            x = x + self.positions(self._places(tokens))
        if self.token_types is not None:
            # a text of one part is of type 0 throughout: one row, added to every token
            x = x + self.token_types(torch.zeros(1, dtype=torch.long, device=tokens.device))
        if self.norm is not None:
            x = self.norm(x)
        return self.dropout(x)

    def _places(self, tokens: Tensor) -> Tensor:
        """The tokens' places, made on their device: a copy from the host would wait for it."""
        if self.places is None:
            return torch.arange(self.first, self.first + tokens.shape[1], device=tokens.device)
        self.places = self.places.to(tokens.device)  # copied once
        return self.places + self.first if self.first else self.places


class Mlp(nn.Module):  # type: ignore[misc]
    """fc2(GELU(fc1 x)), or with a gate fc2(SiLU(gate x) * fc1 x) (SwiGLU, Shazeer 2020).

    Or another activation of the spec's in place of GELU or SiLU.
    """

    def __init__(self, spec: TransformerSpec, width: int = 0) -> None:
        super().__init__()
        h, f, bias = spec.hidden_size, width or spec.ffn_hidden_size, spec.mlp_bias
        self.fc1 = nn.Linear(h, f, bias=bias)
        self.gate = nn.Linear(h, f, bias=bias) if spec.gated_mlp else None
        self.fc2 = nn.Linear(f, h, bias=bias)
        self.columns: Columns = apart
        self.activation = activation(spec)

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, s, h) to (b, s, h)."""
        if self.gate is None:
            (y,) = self.columns(x, (self.fc1,))
            return self.fc2(self.activation(y))
        y, gate = self.columns(x, (self.fc1, self.gate))
        return self.fc2(self.activation(gate) * y)


class Block(nn.Module):  # type: ignore[misc]
    """One layer: attention and MLP, each with its norm, dropout and residual.

    Pre-norm is x + f(norm(x)), with norms behind parts too x + norm(f(norm(x))); post-norm (BERT)
    is norm(x + f(x)); where attention and MLP are parallel x + f(norm(x)) + g(norm(x)). Full
    recomputation is inside forward, so that what wraps a block (gathering of sharded parameters)
    stays outside of it. With a `share` of experts the MLP is a mixture, with a `window` attention
    sees that many tokens.
    """

    def __init__(
        self,
        spec: TransformerSpec,
        *,
        rotary: Rotary | None,
        recompute: Recompute,
        share: Share | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm = make_norm(spec)
        self.attention = make_attention(spec, rotary=rotary, recompute=recompute, window=window)
        self.parallel = spec.parallel_block != "none"
        self.mlp_norm: nn.Module | None = None
        if spec.parallel_block != "shared_norm":
            self.mlp_norm = make_norm(spec)
        self.attention_out_norm, self.mlp_out_norm = (make_norm_after(spec) for _ in range(2))
        self.mlp = Mlp(spec) if share is None else make_mixture(spec, share)
        self.dropout = make_dropout(spec)
        self.post_norm, self.scale = spec.post_norm, spec.residual_scale
        self.recompute = recompute
        self.host: HostLayer | None = None

    def recompute_as(self, mode: Recompute) -> None:
        """Let backward compute the layer again, its attention alone, or nothing."""
        self.recompute = self.attention.recompute = mode

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, s, h) to (b, s, h)."""
        with nullcontext() if self.host is None else self.host.kept(self):
            if self.recompute is Recompute.FULL and self.training:
                return repeated(self._layer, x, host=self.host)
            return self._layer(x)

    def _layer(self, x: Tensor) -> Tensor:
        if self.parallel or self.mlp_norm is None:
            return self._parallel(x)
        if self.post_norm:
            x = self.attention_norm(x + self.dropout(self.attention(x)))
            return self.mlp_norm(x + self.dropout(self.mlp(x)))
        x = self._sum(x, self.attention_out_norm(self.attention(self.attention_norm(x))))
        return self._sum(x, self.mlp_out_norm(self.mlp(self.mlp_norm(x))))

    def _parallel(self, x: Tensor) -> Tensor:
        normed = self.attention_norm(x)
        behind = normed if self.mlp_norm is None else self.mlp_norm(x)
        return self._sum(self._sum(x, self.attention(normed)), self.mlp(behind))

    def _sum(self, x: Tensor, part: Tensor) -> Tensor:
        """What a part adds to what it started from."""
        return torch.add(x, self.dropout(part), alpha=self.scale)


class Head(nn.Module):  # type: ignore[misc]
    """Final norm, pooler, masked-language transform and output projection, as the spec has them.

    A spec without a head gives hidden states back.
    """

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        h, masked = spec.hidden_size, spec.head == "mlm"
        self.norm = None if spec.post_norm else make_norm(spec)
        self.pooler = nn.Linear(h, h) if spec.pooler else None
        self.transform = nn.Linear(h, h) if masked else None
        self.transform_norm = make_norm(spec) if masked else None
        self.logits = None if spec.head == "none" else nn.Linear(h, spec.vocab_rows, bias=masked)
        self.columns: Columns = apart
        self.activation = activation(spec)
        self.scale, self.cap = spec.logit_scale, spec.logit_cap

    def forward(self, x: Tensor) -> Tensor:
        """Map hidden states (b, s, h) to logits (b, s, V)."""
        if self.norm is not None:
            x = self.norm(x)
        if self.pooler is not None:
            # Nothing that is trained here reads the pooled token. Times zero it changes no value
            # but is computed, and its parameters get a gradient (zero), which DDP waits for.
            x = x + 0.0 * torch.tanh(self.pooler(x[:, 0])).unsqueeze(1)
        if self.transform is not None and self.transform_norm is not None:
            x = self.transform_norm(self.activation(self.transform(x)))
        if self.logits is None:
            return x
        (logits,) = self.columns(scaled(x, self.scale), (self.logits,))
        return capped(logits, self.cap) if self.cap else logits


def make_attention(
    spec: TransformerSpec, *, rotary: Rotary | None, recompute: Recompute, window: int | None
) -> nn.Module:
    """Return a layer's attention: with keys and values of their own, or made from latent ones."""
    if spec.kv_lora_rank:
        return LatentAttention(spec, rotary=rotary, recompute=recompute)
    return Attention(spec, rotary=rotary, recompute=recompute, window=window)


def make_mixture(spec: TransformerSpec, share: Share = WHOLE) -> Mixture:
    """Return a layer's experts, of which a rank holds a share."""
    width = spec.shared_expert_ffn_hidden_size
    return Mixture(spec, share, Mlp(spec, width) if width else None)


def make_dropout(spec: TransformerSpec) -> nn.Module:
    """Return dropout with the spec's probability (0 is free: the input is passed on)."""
    return nn.Dropout(DROPOUT if spec.dropout else 0.0)


def scaled(x: Tensor, factor: float) -> Tensor:
    """Values times a number; of 1 themselves."""
    return x if factor == 1.0 else x * factor


def capped(logits: Tensor, cap: float) -> Tensor:
    """C tanh(x / c) of logits that nothing else reads; kept is the result alone."""
    result: Tensor = _Capped.apply(logits, cap)
    return result


class _Capped(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(ctx: Any, logits: Tensor, cap: float) -> Tensor:  # noqa: ANN401
        result = (logits / cap).tanh_().mul_(cap)
        ctx.save_for_backward(result)
        ctx.cap = cap
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (result,) = ctx.saved_tensors
        inward = (result / ctx.cap).square_().neg_().add_(1.0)  # one tensor beside both
        return inward.mul_(grad), None
