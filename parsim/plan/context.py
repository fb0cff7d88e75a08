"""How the ranks of a context-parallel group let each query meet all keys and values."""

from __future__ import annotations

from enum import IntEnum


class CpCommType(IntEnum):
    """What context-parallel ranks exchange in a layer's attention, as Megatron-Core names it.

    DEFAULT is what the software does. P2P sends blocks of keys and values round a ring (ring
    attention, arXiv:2310.01889). ALL_GATHER gives every rank all keys and values (Llama 3,
    arXiv:2407.21783, 3.3.2). A2A gives a rank some heads of the whole sequence, and brings
    their outputs back (DeepSpeed-Ulysses, arXiv:2309.14509).
    """

    DEFAULT = 0
    P2P = 1
    ALL_GATHER = 2
    A2A = 3

    def __str__(self) -> str:
        """How scenarios and frameworks write it."""
        return self.name.lower()
