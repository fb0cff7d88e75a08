"""One operation on one axis of a mesh: how its inputs, its weight and its output are laid out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parsim.layout.mesh import B, P, S, Sbp

Inside = Literal["", "statistics", "softmax"]
"""What devices exchange inside of an operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One operation on one axis: how its inputs, its weight and its output are laid out.

    `word` says what it goes by. Of the operation's sizes those in `divided` are smaller on a device
    by the size of the axis. `inside` is what its devices exchange while they compute.
    """

    word: str
    inputs: tuple[Sbp, ...]
    output: Sbp
    weight: Sbp = B
    divided: tuple[str, ...] = ()
    inside: Inside = ""

    def __str__(self) -> str:
        return f"{' '.join(map(str, self.inputs))} x {self.weight} -> {self.output}"


WHOLE = Signature(word="whole", inputs=(B,), output=B)
BATCH = Signature(word="batch", inputs=(S(0),), output=S(0))
SUMMANDS = Signature(word="summands", inputs=(P,), output=P)


def alike(word: str, part: Sbp, count: int) -> Signature:
    """All inputs and the output laid out alike."""
    return Signature(word=word, inputs=(part,) * count, output=part)
