"""Key-value heads that groups of query heads share, where tensor-parallel ranks are more than they.

Of g heads a rank of t has g / t, and one where t is a multiple of g: each head is then needed on
t / g neighbouring ranks, which have its other query heads.

    t = 4, g = 2     rank 0: q0 q1 | kv0    rank 1: q2 q3 | kv0    rank 2: q4 q5 | kv1    ...

Two ways are in use. Copies: each of those ranks has the head's weights, multiplies for itself, and
the copies' gradients are added up. Gathered: weights stay divided by t, though a rank's part is no
whole head, and what they give is gathered in every layer.

Source: copies as in vLLM, transformers and BigCode's Megatron-LM (`key_value` on every rank, commit
7c325cd); gathered as in Megatron-Core from 0.16 on (`SelfAttention.get_query_key_value_tensors`,
commit f7dfb99795).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedHeads:
    """The key-value heads in an operator's width: `count` of them, `width` values wide together.

    `gathered` says that more ranks than heads divide the weights all the same, and gather what
    they give.
    """

    count: int
    width: int
    gathered: bool = False
