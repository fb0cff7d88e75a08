"""Which experts a token meets, and how much each of them counts.

    softmax   the k largest logits; weights are their shares among the k, or among all
    sigmoid   of each expert by itself; with a bias for the choice alone (DeepSeek-V3)
    groups    first the groups that suit best, by their best expert (softmax) or by the sum of their
              best two (sigmoid), then the k best experts of these

Source: DeepSeek-V2 (arXiv:2405.04434), section 2.2.2; DeepSeek-V3 (arXiv:2412.19437), equations 12
to 16.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from executor.torch_internals.distributed import stored_tensor
from parsim.model.transformer import TransformerSpec

_SMALL = 1e-20
"""Added to a sum of scores that weights are divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Chooses `top_k` of the experts of `kept` of `groups` equal groups, neighbours."""

    top_k: int
    sigmoid: bool
    normalized: bool
    scale: float
    groups: int
    kept: int

    @classmethod
    def of(cls, spec: TransformerSpec) -> Choice:
        """That of a model."""
        return cls(
            top_k=spec.experts_per_token,
            sigmoid=spec.router_scoring == "sigmoid",
            normalized=spec.norm_topk_prob,
            scale=spec.routed_scaling_factor,
            groups=spec.expert_groups,
            kept=spec.groups_per_token,
        )

    def __call__(self, logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights and numbers (T, k) of the chosen experts, from the router's logits (T, E)."""
        if self.sigmoid or self.kept < self.groups or bias is not None:
            weights, experts = self._scored(logits, bias)
        else:
            chosen, experts = logits.topk(self.top_k, dim=-1)
            among = chosen if self.normalized else logits
            weights = among.softmax(dim=-1)
            weights = weights if self.normalized else weights.gather(1, experts)
        return (weights if self.scale == 1.0 else weights * self.scale), experts

    def _scored(self, logits: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        scores = logits.sigmoid() if self.sigmoid else logits.softmax(dim=-1)
        wished = scores.detach() if bias is None else scores.detach() + stored_tensor(bias)
        experts = self._of_best_groups(wished).topk(self.top_k, dim=-1).indices
        weights = scores.gather(1, experts)
        if self.normalized:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + _SMALL)
        return weights, experts

    def _of_best_groups(self, wished: Tensor) -> Tensor:
        """Scores (T, E), those of groups that do not suit a token below all others."""
        if self.kept == self.groups:
            return wished
        apart = wished.unflatten(-1, (self.groups, -1))
        best = apart.topk(2 if self.sigmoid else 1, dim=-1).values.sum(-1)
        suiting = torch.zeros_like(best, dtype=torch.bool)
        suiting.scatter_(1, best.topk(self.kept, dim=-1).indices, True)
        return apart.masked_fill(~suiting.unsqueeze(-1), -torch.inf).flatten(1)
