"""Attention by heads: all-to-alls give each context rank some heads of the whole sequence.

    rank 0   all heads of its tokens  -> q k v ->  heads 0, 1 of all tokens  -> out ->  its tokens
    rank 1   all heads of its tokens               heads 2, 3 of all tokens             its tokens

Attention itself is then as without context parallelism, masks, windows and dropout too. Backward is
the same way back: a tensor that came by an all-to-all has its gradient sent by one, so that each
layer has four of them in either direction (DeepSpeed-Ulysses, arXiv:2309.14509).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from executor.parallel.ring import CONTEXT_RANGE
from executor.parallel.token_order import by_rank, in_sequence

Move = Callable[[Tensor], Tensor]
"""An all-to-all with the reordering around it."""

HEADS = 1
"""The dim of heads in (b, a, s, d)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ulysses:
    """Attention over the ranks of a group; called with what each of them has of (b, a, s, d).

    `attend` is the attention of whole sequences. The group's size divides the heads of queries and
    those of keys: neighbours go together, so that each rank has the keys that its queries share.
    """

    group: dist.ProcessGroup
    causal: bool
    attend: Callable[[Tensor, Tensor, Tensor], Tensor]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to the tokens of all ranks; the result has the heads and tokens of `q`."""
        mixed = self.attend(*(_Moved.apply(x, self.to_heads, self.to_tokens) for x in (q, k, v)))
        back: Tensor = _Moved.apply(mixed, self.to_tokens, self.to_heads)
        return back

    def to_heads(self, x: Tensor) -> Tensor:
        """All heads (b, a, s, d) of this rank's tokens for its heads of all tokens."""
        sent = torch.stack(x.chunk(dist.get_world_size(self.group), HEADS))
        return in_sequence(self._swapped(sent).unbind(), causal=self.causal)

    def to_tokens(self, x: Tensor) -> Tensor:
        """The way back of `to_heads`."""
        sent = by_rank(x, dist.get_world_size(self.group), causal=self.causal)
        return torch.cat(self._swapped(sent).unbind(), HEADS)

    def _swapped(self, sent: Tensor) -> Tensor:
        """The part for each rank (cp, ..), for the part that each rank has for this one."""
        received = torch.empty_like(sent)
        with torch.profiler.record_function(CONTEXT_RANGE):
            dist.all_to_all_single(received, sent, group=self.group)
        return received


class _Moved(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """A tensor moved one way between ranks, its gradient the other way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Move, back: Move) -> Tensor:  # noqa: ANN401
        ctx.back = back
        return there(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return ctx.back(grad), None, None
