"""A mixture of experts in place of an MLP: router, dispatch, experts, combine; no token is dropped.

    x (T, h) -> router -> T k choices -> sorted by expert -> exchange -> sorted by local expert
    y (T, h) <- sum of copies <- exchange <- back in the order of ranks <- up, activation, down

T tokens of this rank, k experts a token, E experts, of which this rank holds some (`Share`). The
weight of a choice is applied beside the activation, so that what comes out of `down` need not be
kept. All ranks that share a layer's experts have tokens of their own.

Source: Shazeer et al. 2017 (arXiv:1701.06538), Mixtral (arXiv:2401.04088): softmax over the chosen
experts' logits, which is softmax over all, chosen and normalised; or it is left as it is among all.
Other ways to choose, and what keeps the experts evenly busy, are in
`executor.model.mixture.choice`. The parameters and products are those that
`parsim.model.operators.Experts` counts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from executor.model.attention.self_attention import itself
from executor.model.factors import local_part, product_dtype
from executor.model.mixture.choice import Balance, Choice
from executor.model.mixture.grouped import Counts, activated, grouped, summed
from parsim.model.transformer import TransformerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Which experts a rank holds, and which part of each: number `index` of `ep`, `slice` of `etp`.

    Experts are divided over `ep`, their widths over `etp`.
    """

    ep: int = 1
    index: int = 0
    etp: int = 1
    slice: int = 0


WHOLE = Share()
"""All experts of a layer."""


class Exchange(Protocol):
    """Moves rows between the ranks that share a layer's experts, and gradients back."""

    def counts(self, sent: Tensor) -> Tensor:
        """Rows that each rank sends here, `sent` being those sent there: (ranks, local experts)."""

    def rows(self, x: Tensor, sent: Counts, received: Counts) -> Tensor:
        """Send so many rows to each rank and receive so many from each, in order of rank."""


class Nowhere:
    """The exchange of ranks that have all experts: nothing goes anywhere."""

    def counts(self, sent: Tensor) -> Tensor:
        """What is sent is received."""
        return sent

    def rows(self, x: Tensor, sent: Counts, received: Counts) -> Tensor:
        """The rows stay."""
        del sent, received
        return x


class Router(nn.Module):  # type: ignore[misc]
    """Logits (T, E) in at least fp32, whatever the precision of x: choices hang on their order."""

    def __init__(self, spec: TransformerSpec) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(spec.num_experts, spec.hidden_size))
        bias = nn.Parameter(torch.empty(spec.num_experts)) if spec.mlp_bias else None
        self.register_parameter("bias", bias)
        chosen = nn.Parameter(torch.empty(spec.num_experts), requires_grad=False)
        self.register_parameter("bias_of_choice", chosen if spec.router_bias else None)
        self.repeated: Callable[[Tensor], Tensor] = itself

    def forward(self, x: Tensor) -> Tensor:
        """Map (T, h) to (T, E)."""
        wide = torch.promote_types(x.dtype, torch.float32)
        bias = None if self.bias is None else self.repeated(self.bias).to(wide)
        with nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False):
            return F.linear(x.to(wide), self.repeated(self.weight).to(wide), bias)


class Experts(nn.Module):  # type: ignore[misc]
    """This rank's experts: `up` (local, halves, f, h), a gate and a value if gated, and `down`.

    Of E experts a rank of ep x etp has E / ep, of each f / etp of its width, and of the last bias
    h / etp values, for the outputs of the etp ranks are added up.
    """

    def __init__(self, spec: TransformerSpec, share: Share) -> None:
        super().__init__()
        self.share = share
        self.first = share.index * spec.num_experts // share.ep
        count, h = spec.num_experts // share.ep, spec.hidden_size
        f, halves = spec.expert_ffn_hidden_size // share.etp, 2 if spec.gated_mlp else 1
        self.up = nn.Parameter(torch.empty(count, halves, f, h))
        self.down = nn.Parameter(torch.empty(count, h, f))
        biased = spec.mlp_bias
        self.register_parameter(
            "up_bias", nn.Parameter(torch.empty(count, halves, f)) if biased else None
        )
        self.register_parameter(
            "down_bias", nn.Parameter(torch.empty(count, h // share.etp)) if biased else None
        )

    def forward(self, rows: Tensor, weights: Tensor, counts: Counts) -> Tensor:
        """Map rows (R, h) sorted by expert, with a weight (R,) each, to (R, h)."""
        dtype = product_dtype(rows)
        up, down = local_part(self.up).to(dtype), local_part(self.down).to(dtype)
        inner = grouped(rows.to(dtype), up.flatten(1, 2), counts)
        if self.up_bias is not None:
            inner = inner + counts.repeat(local_part(self.up_bias).to(dtype).flatten(1))
        outer = grouped(activated(inner, weights, gated=up.shape[1] == 2), down, counts)
        if self.down_bias is None:
            return outer
        return outer + weights.to(dtype).unsqueeze(1) * self._last_bias(dtype, counts)

    def _last_bias(self, dtype: torch.dtype, counts: Counts) -> Tensor:
        """Each row's bias, zero but for the part of the width that this rank adds."""
        bias, share = local_part(self.down_bias).to(dtype), self.share
        width = bias.shape[1]
        spread = F.pad(bias, (share.slice * width, (share.etp - 1 - share.slice) * width))
        return counts.repeat(spread)


class Mixture(nn.Module):  # type: ignore[misc]
    """Router and experts, and the shared expert beside them, which every token meets.

    `exchange` is put in place where the experts are spread over ranks. Into `received`, where it is
    a list, goes the number of rows that this rank's experts work on in each forward.
    """

    def __init__(self, spec: TransformerSpec, share: Share, shared: nn.Module | None) -> None:
        super().__init__()
        self.choice = Choice.of(spec)
        self.top_k = spec.experts_per_token
        self.balance = Balance.of(spec)
        self.router = Router(spec)
        self.experts = Experts(spec, share)
        self.shared = shared
        self.share = share
        self.exchange: Exchange = Nowhere()
        self.received: list[int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map (b, s, h) to (b, s, h)."""
        y = self._routed(x.flatten(0, 1)).view_as(x)
        return y if self.shared is None else y + self.shared(x)

    def _routed(self, x: Tensor) -> Tensor:
        logits = self.router(x)
        weights, experts = self.choice(logits, self.router.bias_of_choice)
        weights = self.balance.applied(weights, logits, experts).flatten()
        order = experts.flatten().argsort(stable=True)
        sent = self._counts(experts)
        copies = self._for_ranks(order, sent)
        tokens = copies.div(self.top_k, rounding_mode="floor")
        rows, weights = x.index_select(0, tokens), weights.index_select(0, copies)
        back = self._there_and_back(rows, weights, sent)
        return summed(back, tokens, len(x))

    def _counts(self, experts: Tensor) -> Tensor:
        """Copies for each local expert of each rank, (ranks, local experts)."""
        count = self.router.weight.shape[0]
        flat = experts.flatten()
        copies = torch.zeros(count, dtype=torch.long, device=flat.device)
        copies = copies.index_add(0, flat, torch.ones_like(flat))
        return copies.view(self.share.ep, -1).repeat_interleave(self.share.etp, 0)

    def _for_ranks(self, order: Tensor, sent: Tensor) -> Tensor:
        """Copies in the order of ranks: those for an expert go to all ranks that hold a slice."""
        if self.share.etp == 1:
            return order
        sizes = sent[:: self.share.etp].sum(1).tolist()
        parts = order.split(sizes)
        return torch.cat([part for part in parts for _ in range(self.share.etp)])

    def _there_and_back(self, rows: Tensor, weights: Tensor, sent: Tensor) -> Tensor:
        """What the experts make of each row, weighted."""
        move = self.exchange
        received = move.counts(sent)
        out, into = Counts(sent.sum(1), len(rows)), Counts(received.sum(1), len(rows))
        rows, weights = move.rows(rows, out, into), move.rows(weights, out, into)
        if self.received is not None:
            self.received.append(len(rows))
        counts, order = Counts(received.sum(0), len(rows)), _by_expert(received, len(rows))
        if order is None:
            return move.rows(self.experts(rows, weights, counts), into, out)
        rows, weights = rows.index_select(0, order), weights.index_select(0, order)
        results = self.experts(rows, weights, counts).index_select(0, _inverse(order))
        return move.rows(results, into, out)


def _by_expert(received: Tensor, total: int) -> Tensor | None:
    """The order that sorts rows (from rank, for expert) by expert; None where they are sorted."""
    ranks, count = received.shape
    if ranks == 1 or count == 1:
        return None
    experts = torch.arange(count, device=received.device).repeat(ranks)
    flat = received.flatten()
    return experts.repeat_interleave(flat, output_size=total).argsort(stable=True)


def _inverse(order: Tensor) -> Tensor:
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=order.device)
    return places
