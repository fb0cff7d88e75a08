"""Ring attention: blocks of keys and values go round the ranks that share a sequence.

    rank 0   q0 k0 | q0 k2 | q0 k1       each | is a message to the next rank, on its way while
    rank 1   q1 k1 | q1 k0 | q1 k2       the block before it is computed
    rank 2   q2 k2 | q2 k1 | q2 k0

Rows of scores are put together by their log-sum-exp, which is exact (arXiv:2310.01889). Backward
starts from the block that came last and goes the other way round, so that it ends with the own one.
With each block travels the sum of its gradients so far, a step behind. Where b are the bytes of a
rank's keys and values, messages have

    forward    b, b, .. b       cp - 1 of them, each beside a block
    backward   b, 2b, .. 2b, b  cp of them, each beside a block

A causal sequence is cut into pieces from either end (`executor.parallel.token_order`), so half of a
foreign block is seen and half is not, and each takes the same time:

    of an earlier rank    all queries see the first half of the keys
    of a later rank       the second half of the queries sees all keys
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from executor.torch_internals.kernels import attend, attend_backward

Gradient = Callable[[int, Tensor], tuple[slice, Tensor, Tensor]]
"""Takes a rank and its block of keys and values (2, b, a, s, d); returns which keys are seen, their
gradients and those of their values."""


class SeenPart(NamedTuple):
    """What of the local queries sees what of a block of keys."""

    queries: slice
    keys: slice
    causal: bool


WHOLE = slice(None)
CONTEXT_RANGE = "parsim:context"
"""Around each message of keys and values between context-parallel ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Attention over the ranks of a group; called with what each of them has of (b, a, s, d)."""

    group: dist.ProcessGroup
    causal: bool

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend to the tokens of all ranks; the result has the shape of `q`."""
        attended: Tensor = _Attention.apply(q, torch.stack((k, v)), self)
        return attended

    def part(self, source: int, tokens: int) -> SeenPart:
        """What is seen here of the block of a rank."""
        return part(dist.get_rank(self.group), source, tokens, causal=self.causal)

    def blocks(self, kv: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Every rank's block with the number of the rank, the own one first."""
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        block = kv
        for step in range(size - 1):
            coming = torch.empty_like(kv)
            message = _Message(self.group, block, coming, 1)
            yield (rank - step) % size, block
            message.wait()
            block = coming
        yield (rank + 1) % size, block

    def returned(self, kv: Tensor, gradient: Gradient) -> Tensor:
        """The gradient of the own block: what all ranks found, added up on its way round.

        `kv` is the block that `blocks` gave last.
        """
        rank, size = dist.get_rank(self.group), dist.get_world_size(self.group)
        carried = kv.unsqueeze(0)  # [block], later [block, sum of the gradients of the one before]
        for step in range(size):
            first, last = step == 0, step == size - 1
            coming = kv.new_empty(1 if last else 2, *kv.shape)
            sent = carried[-1:] if last else carried
            message = _Message(self.group, sent, coming[:1] if first else coming, -1)
            keys, by_key, by_value = gradient((rank + 1 + step) % size, carried[0])
            message.wait()
            total = coming[-1]
            if first:
                total.zero_()
            total[0, :, :, keys].add_(by_key)
            total[1, :, :, keys].add_(by_value)
            del by_key, by_value  # the next block's are made before these names are given away
            carried = coming
        return carried[-1]


class _Message:
    """Sent to the next rank in a way round and received from the one before; begins at once.

    Drawn from its post to the end of `wait`.
    """

    def __init__(self, group: dist.ProcessGroup, mine: Tensor, coming: Tensor, way: int) -> None:
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        self._range = torch.profiler.record_function(CONTEXT_RANGE)
        self._range.__enter__()
        ways = [
            dist.P2POp(dist.isend, mine, group=group, group_peer=(rank + way) % size),
            dist.P2POp(dist.irecv, coming, group=group, group_peer=(rank - way) % size),
        ]
        self._mine = mine  # gloo reads it until the message is gone
        self._works = dist.batch_isend_irecv(ways)

    def wait(self) -> None:
        for work in self._works:
            work.wait()
        self._range.__exit__(None, None, None)


class _Attention(torch.autograd.Function):  # type: ignore[misc]  # torch has no types here
    """softmax(Q K^T / sqrt(d)) V over all blocks; `kv` are this rank's keys and values."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor, ring: Ring) -> Tensor:  # noqa: ANN401
        block, out, lse = kv, q, q  # of the own block, which is the first
        for source, block in ring.blocks(kv):
            queries, keys, causal = ring.part(source, kv.shape[3])
            k, v = block[:, :, :, keys]
            piece = attend(q[:, :, queries], k, v, causal=causal)
            if block is kv:
                out, lse = piece
            else:
                put_in(out[:, :, queries], lse[:, :, queries], *piece)
        ctx.save_for_backward(q, block, out, lse)
        ctx.ring = ring
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        q, kv, out, lse = ctx.saved_tensors
        by_query = torch.zeros_like(q)

        def gradient(source: int, block: Tensor) -> tuple[slice, Tensor, Tensor]:
            queries, keys, causal = ctx.ring.part(source, kv.shape[3])
            k, v = block[:, :, :, keys]
            here, mine, result, sums = (x[:, :, queries] for x in (grad, q, out, lse))
            gradients = attend_backward(here, mine, k, v, result, sums, causal=causal)
            by_query[:, :, queries].add_(gradients[0])
            return keys, gradients[1], gradients[2]

        return by_query, ctx.ring.returned(kv, gradient), None


def part(rank: int, source: int, tokens: int, *, causal: bool) -> SeenPart:
    """What the queries of a rank see of the keys of another one; both have so many tokens."""
    half = tokens // 2
    if not causal or source == rank:
        return SeenPart(WHOLE, WHOLE, causal and source == rank)
    if source < rank:
        return SeenPart(WHOLE, slice(0, half), causal=False)
    return SeenPart(slice(half, None), WHOLE, causal=False)


def put_in(out: Tensor, lse: Tensor, more: Tensor, its: Tensor) -> None:
    """Add another block's result to what there is, in place.

    out + (more - out) sigmoid(its - lse), which is the mean weighted by exp of both.
    """
    share = torch.sigmoid(its - lse).unsqueeze(-1)
    out.lerp_(more, share.to(out.dtype))
    torch.logaddexp(lse, its, out=lse)
