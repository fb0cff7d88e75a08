"""What graphs that read tokens need beside a network's operations: tables, and attention with more.

A weight that a node does not own is that of the table of the same size: `tie` lets them share it.
Leaves out: the fixed waves that tell a Transformer of 2017 the places of its tokens, and that T5's
later layers use the first one's relative places; neither has parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsim.model.graph.build import owners
from parsim.model.graph.record import Graph
from parsim.model.graph.sequences import SelfAttention
from parsim.model.graph.texts import Embedding

FARTHEST = 128
"""Distance from which on all relative places are one bucket (T5)."""


class Table(nn.Module):  # type: ignore[misc]
    """A row for each token, and one for its place where places are learned."""

    def __init__(self, op: Embedding) -> None:
        super().__init__()
        self.token = nn.Embedding(op.num_embeddings, op.embedding_dim)
        self.places = nn.Embedding(op.positions, op.embedding_dim) if op.positions else None

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (b, s) to (b, s, width)."""
        y: Tensor = self.token(tokens)
        return y if self.places is None else y + self.places.weight[: tokens.shape[1]]


class Heads(nn.Module):  # type: ignore[misc]
    """Attention of queries, keys and values side by side, or of queries and another text's pairs.

    With `buckets` a learned number of each head is added to the score of every relative place.
    """

    def __init__(self, op: SelfAttention) -> None:
        super().__init__()
        self.heads, self.causal = op.heads, op.causal
        self.places = nn.Embedding(op.buckets, op.heads) if op.buckets else None

    def forward(
        self, x: Tensor, other: Tensor | None = None, values: Tensor | None = None
    ) -> Tensor:
        """Map (b, s, 3 w), or (b, s, w) and (b, t, 2 w), to (b, s, w); three inputs are by head."""
        if values is not None:
            return F.scaled_dot_product_attention(x, other, values, is_causal=self.causal)
        parts = x.chunk(3, dim=-1) if other is None else (x, *other.chunk(2, dim=-1))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        if self.places is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = self._scores(q.shape[2], k.shape[2]).to(q.dtype)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=scores)
        return y.transpose(1, 2).flatten(2)

    def _scores(self, queries: int, keys: int) -> Tensor:
        """What is added to the scores, (heads, queries, keys)."""
        weight = self.places.weight  # type: ignore[union-attr]
        # on the device: a copy from the host would hold it up in every layer and micro-batch
        ahead = torch.arange(keys, device=weight.device)[None, :]
        apart = ahead - torch.arange(queries, device=weight.device)[:, None]
        index = buckets(apart, len(weight), causal=self.causal)
        scores: Tensor = F.embedding(index, weight).permute(2, 0, 1)
        if self.causal:
            scores = scores.masked_fill(apart > 0, -math.inf)
        return scores


def buckets(apart: Tensor, count: int, *, causal: bool) -> Tensor:
    """The bucket of each distance from a query to a key: single ones near, ever wider ones far.

    Of both directions each has half of the buckets. Source: Raffel et al. 2019, section 2.1.
    """
    after = torch.zeros_like(apart)
    if causal:
        distance = (-apart).clamp(min=0)
    else:
        count //= 2
        after, distance = (apart > 0).long() * count, apart.abs()
    near = count // 2
    ratio = torch.log(distance.clamp(min=1) / near) / math.log(FARTHEST / near)
    far = near + (ratio * (count - near)).long()
    return after + torch.where(distance < near, distance, far.clamp(max=count - 1))


class Additive(nn.Module):  # type: ignore[misc]
    """softmax(v tanh(q + k)) of values, for every query (Bahdanau et al. 2014)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.ones(width))

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Map (b, s, w), (b, t, w) and (b, t, d) to (b, s, d)."""
        pairs = torch.tanh(queries[:, :, None] + keys[:, None])
        return torch.softmax(pairs @ self.v, dim=-1) @ values


def weight_of(module: nn.Module) -> nn.Module:
    """The part of a node's module that has the table."""
    inner: nn.Module = module.token if isinstance(module, Table) else module
    return inner


def crosses(graph: Graph, layers: Iterable[range]) -> tuple[str, str] | None:
    """A node and the owner of its table that are in different stages, if any are."""
    stage = {}
    for number, present in enumerate(layers):
        for layer in present:
            stage.update({node.name: number for node in graph.layers[layer]})
    pairs = owners(graph).items()
    return next(((name, owner) for name, owner in pairs if stage[name] != stage[owner]), None)
