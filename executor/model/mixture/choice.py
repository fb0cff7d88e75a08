"""Which experts a token meets, how much each counts, and the loss that keeps all evenly busy.

    softmax   the k largest logits; weights are their shares among the k, or among all
    sigmoid   of each expert by itself; with a bias for the choice alone (DeepSeek-V3)
    groups    first the groups that suit best, by their best expert (softmax) or by the sum of their
              best two (sigmoid), then the k best experts of these

Source: DeepSeek-V2 (arXiv:2405.04434), section 2.2.2; DeepSeek-V3 (arXiv:2412.19437), equations 12
to 16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        """How the routers of a model choose."""
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


def _unchanged(gradient: Tensor) -> Tensor:
    return gradient


@dataclass(slots=True, kw_only=True)
class Balance:
    """How strongly a layer's experts are balanced, and over which tokens together.

        L = c E sum_i f_i P_i      f_i copies of tokens that went to expert i, for each token
                                   P_i mean over tokens of the router's probability of i

    Source: Switch Transformers (Fedus et al. 2022, arXiv:2101.03961), equations 4 to 6; f counts
    all k choices, as transformers' `load_balancing_loss_func` does, so that a published coefficient
    `router_aux_loss_coef` means here what it means there: c times the mean of L over the layers
    with experts. Each rank balances the tokens of one micro-batch that it has itself, as
    Megatron-Core does by default. Leaves out: transformers takes the means f and P over all layers
    at once before it multiplies them, which no pipeline could do.

    f is a constant, so the gradient is known in closed form, p being softmax(logits):

        dL / dlogit_tj = c E / T p_tj (f_j - sum_i f_i p_ti)

    `weight` is c over the layers with experts, `passes` the passes whose mean an update takes, each
    with a balance of its own. `parts` gives each token of a sequence (s,) the number of the part it
    is balanced with; None: all are. `scaled` gives the gradient on the scale of the loss beside it.
    """

    weight: float
    passes: float = 1.0
    parts: Tensor | None = None
    scaled: Callable[[Tensor], Tensor] = _unchanged

    @classmethod
    def of(cls, spec: TransformerSpec) -> Balance:
        """The balance of a model's routers, where the whole batch is one pass."""
        sparse = sum(map(spec.has_experts, range(spec.num_layers)))
        return cls(weight=spec.router_aux_loss_coef / max(sparse, 1))

    def applied(self, weights: Tensor, logits: Tensor, experts: Tensor) -> Tensor:
        """The weights (T, k) as they are; their backward adds the loss's gradient to the logits.

        `experts` (T, k) are the numbers of the chosen ones of E, `logits` (T, E).
        """
        if not self.weight:
            return weights
        passed: Tensor = _Balanced.apply(weights, logits, experts, self)
        return passed

    def gradient(self, logits: Tensor, experts: Tensor) -> Tensor:
        """The gradient of the loss by the logits (T, E)."""
        part, sizes = self._parts(logits)
        busy = torch.zeros(len(sizes), logits.shape[1], dtype=logits.dtype, device=logits.device)
        ones = torch.ones_like(experts, dtype=logits.dtype)
        busy.index_put_((part.unsqueeze(1), experts), ones, accumulate=True)
        busy = (busy / sizes.unsqueeze(1))[part]
        likely = logits.softmax(dim=-1)
        inner = busy - (busy * likely).sum(1, keepdim=True)
        share = self.weight / self.passes * logits.shape[1] / len(sizes) / sizes[part].unsqueeze(1)
        return likely.mul_(inner).mul_(share)

    def _parts(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The part of each token, and the tokens of each part."""
        tokens = logits.shape[0]
        if self.parts is None:
            part = torch.zeros(tokens, dtype=torch.long, device=logits.device)
            return part, logits.new_full((1,), tokens)
        part = self.parts.to(logits.device)
        sizes = torch.bincount(part).to(logits.dtype) * (tokens // len(part))
        return part.repeat(tokens // len(part)), sizes


class _Balanced(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        weights: Tensor,
        logits: Tensor,
        experts: Tensor,
        balance: Balance,
    ) -> Tensor:
        ctx.save_for_backward(logits, experts)
        ctx.balance = balance
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        balance = ctx.balance
        return grad, balance.scaled(balance.gradient(*ctx.saved_tensors)), None, None
