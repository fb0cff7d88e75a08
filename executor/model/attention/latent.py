"""Multi-head latent attention: keys and values of all heads are made from a few values of a token.

    x -> q_down -> norm -> q_up   -> a heads of (plain | rotary)    (no q_lora_rank: x -> q_up)
    x -> kv_down -> latent -> norm -> kv_up -> a heads of (plain keys | values)
                 -> rotary keys, one for all heads

The parameters and products are those that `parsim.model.attention` counts. Values may be narrower
than queries and keys. Pairs (2i, 2i + 1) of rotary values turn, as published weights have them.

Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1; DeepSeek-V3 (arXiv:2412.19437).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from executor.model.attention.rotary import Rotary, halves_apart
from executor.model.attention.self_attention import Columns, Core, apart, itself
from executor.model.norms import RMSNorm
from executor.model.offload import HostLayer, repeated
from parsim.model.transformer import TransformerSpec
from parsim.plan import Recompute

EPSILON = 1e-6
"""That of the norms of latent values, whatever the model's others have."""


class LatentAttention(nn.Module):  # type: ignore[misc]
    """Low-rank projections down and up around a core, and the projection back.

    `everywhere` passes on what all heads share, the rotary keys: tensor ranks have other heads.
    """

    def __init__(
        self, spec: TransformerSpec, *, rotary: Rotary | None, recompute: Recompute
    ) -> None:
        super().__init__()
        h, a, low = spec.hidden_size, spec.num_attention_heads, spec.q_lora_rank
        self.head_dim, self.rope, self.latent = (
            spec.head_dim,
            spec.rope_head_dim,
            spec.kv_lora_rank,
        )
        self.plain, self.value = spec.head_dim - spec.rope_head_dim, spec.value_width
        self.q_down = nn.Linear(h, low, bias=False) if low else None
        self.q_norm = RMSNorm(low, eps=EPSILON) if low else None
        self.q_up = nn.Linear(low or h, a * self.head_dim, bias=False)
        self.kv_down = nn.Linear(h, self.latent + self.rope, bias=False)
        self.kv_norm = RMSNorm(self.latent, eps=EPSILON)
        self.kv_up = nn.Linear(self.latent, a * (self.plain + self.value), bias=False)
        self.core = Core(fused=spec.fused_attention, causal=spec.causal, dropout=0.0)
        self.projection = nn.Linear(a * self.value, h, bias=spec.projection_bias)
        self.columns: Columns = apart
        self.everywhere: Callable[[Tensor], Tensor] = itself
        self.rotary = rotary
        self.recompute = recompute
        self.host: HostLayer | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, s, h) to (b, s, h); selective recomputation repeats the core in backward."""
        q = self._queries(x)
        k, v = self._keys_and_values(x)
        if self.recompute is Recompute.SELECTIVE and self.training:
            mixed = repeated(self.core, q, k, v, host=self.host)
        else:
            mixed = self.core(q, k, v)
        return self.projection(mixed.transpose(1, 2).flatten(2))

    def _queries(self, x: Tensor) -> Tensor:
        low = x
        if self.q_down is not None and self.q_norm is not None:
            low = self.q_norm(self.q_down(x))
        (q,) = self.columns(low, (self.q_up,))
        plain, rotary = self._heads(q).split((self.plain, self.rope), dim=-1)
        return torch.cat((plain, self._turned(rotary)), dim=-1)

    def _keys_and_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        latent, rotary = self.kv_down(x).split((self.latent, self.rope), dim=-1)
        (up,) = self.columns(self.kv_norm(latent), (self.kv_up,))
        plain, v = self._heads(up, self.plain + self.value).split((self.plain, self.value), dim=-1)
        shared = self._turned(self.everywhere(rotary).unsqueeze(1))
        k = torch.cat((plain, shared.expand(-1, plain.shape[1], -1, -1)), dim=-1)
        return k, v.contiguous()  # what `up` had beside it need not be kept

    def _turned(self, x: Tensor) -> Tensor:
        """Rotary values (b, a, s, r), turned by their places; halves of pairs lie apart then."""
        halves = halves_apart(x)
        return halves if self.rotary is None else self.rotary.rotate(halves)

    def _heads(self, x: Tensor, width: int = 0) -> Tensor:
        return x.unflatten(-1, (-1, width or self.head_dim)).transpose(1, 2)
