"""Attention of a rank's queries to the keys and values of all context ranks, gathered first.

    forward    all-gather K V | queries of each piece x keys up to its end
    backward   all-gather K V | the same, and gradients of all K V | reduce-scatter to their ranks

Nothing of other ranks is kept between the two (Llama 3, arXiv:2407.21783, section 3.3.2). What a
causal piece of queries sees is cut so that no kernel needs more than torch's own mask, and a window
is cut in tiles, as in `executor.model.attention.window`:

    piece   | all keys ahead of it, whole | its own, causal |
    window             | tile of queries x the keys of the window, masked |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from executor.model.attention.window import mask, tiles
from executor.parallel.ring import put_in
from executor.parallel.token_order import by_rank, in_sequence, spans
from executor.torch_internals.distributed import ALL_GATHER, REDUCE_SCATTER
from executor.torch_internals.kernels import attend, attend_backward


class Block(NamedTuple):
    """Local queries and the keys of the whole sequence that one kernel takes.

    `places` are those of the queries in the sequence where a window hides some of the keys. More
    than one block of the same queries follow one another, the `first` of them first.
    """

    queries: slice
    keys: slice
    causal: bool = False
    places: slice | None = None
    first: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Attention over the ranks of a group; called with what each of them has of (b, a, s, d)."""

    group: dist.ProcessGroup
    causal: bool
    window: int | None = None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to the tokens of all ranks; the result has the shape of `q`, the width of `v`."""
        attended: Tensor = _Attention.apply(q, k, v, self)
        return attended

    def blocks(self, tokens: int) -> Iterator[Block]:
        """What the kernels of a rank with so many tokens take."""
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        return blocks(rank, size, tokens, causal=self.causal, window=self.window)

    def whole(self, mine: Tensor) -> Tensor:
        """What all ranks have of (b, a, s, d), as the whole sequence."""
        size = dist.get_world_size(self.group)
        parts = mine.new_empty(size, *mine.shape)
        ALL_GATHER(parts.flatten(0, 1), mine.contiguous(), group=self.group)
        return in_sequence(parts.unbind(), causal=self.causal)

    def returned(self, whole: Tensor) -> Tensor:
        """The sum over all ranks of the gradients of what this rank has."""
        size = dist.get_world_size(self.group)
        parts = by_rank(whole, size, causal=self.causal)
        mine = torch.empty_like(parts[0])
        REDUCE_SCATTER(mine, parts.flatten(0, 1), group=self.group)
        return mine


def blocks(
    rank: int, ranks: int, tokens: int, *, causal: bool, window: int | None
) -> Iterator[Block]:
    """What of the sequence the queries of a rank see, kernel by kernel."""
    if not causal:
        yield Block(slice(0, tokens), slice(0, ranks * tokens))
        return
    begin = 0
    for piece in spans(rank, ranks, tokens, causal=True):
        count = piece.stop - piece.start
        queries = slice(begin, begin + count)
        if window is not None:
            yield from _windows(begin, piece, window)
        else:
            if piece.start:
                yield Block(queries, slice(0, piece.start))
            yield Block(queries, piece, causal=True, first=not piece.start)
        begin += count


def _windows(begin: int, piece: slice, window: int) -> Iterator[Block]:
    """A piece's tiles of queries, the first of which is the rank's token `begin`."""
    for tile, _ in tiles(piece.stop - piece.start, window):
        places = slice(piece.start + tile.start, piece.start + tile.stop)
        keys = slice(max(places.start - window + 1, 0), places.stop)
        yield Block(slice(begin + tile.start, begin + tile.stop), keys, places=places)


class _Attention(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """softmax(Q K^T / sqrt(d)) V of local queries over all keys."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch has no type for it
        q: Tensor,
        k: Tensor,
        v: Tensor,
        over: Gathered,
    ) -> Tensor:
        keys, values = over.whole(k), over.whole(v)
        out = q.new_empty(*q.shape[:3], v.shape[3])
        lse = q.new_empty(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))
        for block in over.blocks(q.shape[2]):
            at, seen = block.queries, block.keys
            hidden = _hidden(block, over.window, q)
            piece = attend(
                q[:, :, at],
                keys[:, :, seen],
                values[:, :, seen],
                causal=block.causal,
                mask=hidden,
            )
            if block.first:
                out[:, :, at], lse[:, :, at] = piece
            else:
                put_in(out[:, :, at], lse[:, :, at], *piece)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.over = over
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        q, k, v, out, lse = ctx.saved_tensors
        over: Gathered = ctx.over
        keys, values = over.whole(k), over.whole(v)
        by_query = torch.zeros_like(q)
        by_key, by_value = torch.zeros_like(keys), torch.zeros_like(values)
        for block in over.blocks(q.shape[2]):
            seen = block.keys
            here, mine, result, sums = (x[:, :, block.queries] for x in (grad, q, out, lse))
            grads = attend_backward(
                *(here, mine, keys[:, :, seen], values[:, :, seen], result, sums),
                causal=block.causal,
                mask=_hidden(block, over.window, q),
            )
            by_query[:, :, block.queries].add_(grads[0])
            by_key[:, :, seen].add_(grads[1])
            by_value[:, :, seen].add_(grads[2])
        return by_query, over.returned(by_key), over.returned(by_value), None


def _hidden(block: Block, window: int | None, like: Tensor) -> Tensor | None:
    if block.places is None or window is None:
        return None
    return mask(block.places, block.keys, window, like)
