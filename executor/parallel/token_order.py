"""The order of tokens in a sequence that context ranks share, and in what each of them has of it.

A causal sequence is cut into 2 cp pieces, and rank r has the r-th from either end, so that all have
the same work (arXiv:2311.09431). Seen by both ends it is cut plainly:

    causal, cp = 2    | rank 0 | rank 1 | rank 1 | rank 0 |
    both ends         |     rank 0      |     rank 1      |

Tokens are the last dim but one of all tensors here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

TOKENS = -2
"""The dim of tokens in (.., s, d)."""


def in_sequence(parts: Sequence[Tensor], *, causal: bool) -> Tensor:
    """What all ranks have, rank by rank, as the whole sequence."""
    if not causal:
        return torch.cat(tuple(parts), TOKENS)
    halves = [part.chunk(2, TOKENS) for part in parts]
    first, second = [pair[0] for pair in halves], [pair[1] for pair in reversed(halves)]
    return torch.cat((*first, *second), TOKENS)


def by_rank(whole: Tensor, ranks: int, *, causal: bool) -> Tensor:
    """The parts of a whole sequence that each rank has, (ranks, .., s / ranks, d)."""
    pieces = whole.chunk(2 * ranks if causal else ranks, TOKENS)
    if not causal:
        return torch.stack(pieces)
    return torch.stack(
        [torch.cat((pieces[rank], pieces[-1 - rank]), TOKENS) for rank in range(ranks)]
    )


def spans(rank: int, ranks: int, tokens: int, *, causal: bool) -> list[slice]:
    """Where in the sequence the pieces of a rank are, which has so many tokens, in its order."""
    if not causal:
        return [slice(rank * tokens, (rank + 1) * tokens)]
    half = tokens // 2
    return [slice(at * half, (at + 1) * half) for at in (rank, 2 * ranks - 1 - rank)]
