"""What the members of a Hugging Face family share, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the members of a family share, and what a `config.json` of theirs may leave out."""

    flags: Mapping[str, Any] = field(default_factory=dict)
    """Fields of TransformerSpec that all members share, where not the spec's default."""

    kv_heads: int | None = None
    """Key-value heads where the key is absent; None: one for each query head."""

    head_dim: int | None = None
    """Width of a head where the key is absent; None: an equal share of the model's width."""

    epsilon: tuple[str, float] = ("rms_norm_eps", 1e-6)
    """Key of what norms add to the variance, and its default."""

    theta: float = 10_000.0
    """Base of rotary positions where the key is absent."""

    dropout: Mapping[str, float] = field(default_factory=lambda: {"attention_dropout": 0.0})
    """Probabilities of dropout by key, with their defaults."""

    switches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Biases of a TransformerSpec that a key switches; where it is absent, those of `flags`."""

    window: tuple[str, int | None] | None = None
    """Key of the tokens that layers see, and its default, None for all; None: there is no key."""

    rotary_share: float = 1.0
    """Part of each head that turns with its position, where the file says nothing."""

    scaled_embeddings: bool = False
    """Whether embeddings are multiplied by the square root of the model's width."""

    activation: str = "hidden_act"
    """Key of the function between an MLP's products; empty where it is always the same."""

    latent: bool = False
    """Whether attention is latent, whose heads have two parts."""

    sizes: tuple[str, str, str] = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    """Keys of depth, width and query heads."""

    length: str = "max_position_embeddings"
    """Key of the longest sequence that a member was made for."""

    left_out: Mapping[str, int] = field(default_factory=dict)
    """Sizes by key that published files rely on the configuration class for."""

    spare_positions: int = 0
    """Rows of the table of positions that no token has."""

    unlike: str = ""
    """What its members compute otherwise than the spec says."""
