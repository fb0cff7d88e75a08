"""Operators without products, whose seconds are the bytes that they move."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.model.operators.splits import Region
from parsim.model.shared_heads import SharedHeads


@dataclass(frozen=True, slots=True, kw_only=True)
class Elementwise:
    """A memory-bound operator: so many values and mask bytes moved per token and width element.

    `forward`, `backward`, `saved` count values, `mask` the single bytes that forward writes,
    backward reads and the operator keeps; `launches` counts kernels (forward, backward). Each
    number is explained where the operator is built. `statistics` are the channels of a batch
    normalisation, whose means and variances replicas may share; `shared` are key-value heads in the
    width, which cannot be divided further.
    """

    name: str
    tokens: int
    width: int
    region: Region
    forward: float
    backward: float
    saved: float = 0.0
    mask: float = 0.0
    launches: tuple[int, int] = (1, 1)
    repeated_parameters: int = 0
    statistics: int = 0
    shared: SharedHeads | None = None
    trained: bool = True

    split_parameters = 0

    @property
    def kind(self) -> str:
        """What it computes, whatever it stands behind: `mlp_norm` is a norm."""
        return self.name.rpartition("_")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """Token embedding (split over the vocabulary) plus learned positions and token types.

    Forward reads one row per token and writes it; backward adds into the gradient rows.
    """

    tokens: int
    vocab_size: int
    width: int
    positions: int = 0
    token_types: int = 0
    owns_weight: bool = True
    trained: bool = True

    @property
    def split_parameters(self) -> int:
        """The vocabulary table."""
        return self.vocab_size * self.width if self.owns_weight else 0

    @property
    def repeated_parameters(self) -> int:
        """Position and token-type tables, which every tensor-parallel rank holds."""
        return (self.positions + self.token_types) * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Softmax cross-entropy over the vocabulary, split over the vocabulary like the logits.

    How many bytes it moves and keeps per logit depends on the software, not on the model.
    """

    tokens: int
    vocab_size: int

    split_parameters = 0
    repeated_parameters = 0
