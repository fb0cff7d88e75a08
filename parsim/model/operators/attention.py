"""The core of attention: which keys a query sees, and both products over them."""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_TILE = 128
"""Keys of a tile of fused attention, by which a window is rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """softmax(Q K^T) V over `heads` query heads that share `kv_heads` keys and values.

    `fused` is a flash kernel: scores stay on chip, Q, K, V and one fp32 number per token and head
    are kept. Unfused keeps the softmax output and, with `dropout`, its mask and dropped copy.
    `value_dim` is the width of a value's head where it is not `head_dim`, and of `window` tokens a
    query sees the last ones only (None: all before it). `keys` are the tokens of the text that
    queries look at where it is another one (None: their own). A text may be packed with samples of
    `sample` tokens that see themselves alone (None: it is one). `shaped` scores are changed before
    the softmax (a cap, or a bias that grows with distance), which not every kernel does.
    """

    tokens: int
    heads: int
    kv_heads: int
    head_dim: int
    causal: bool
    fused: bool
    dropout: bool
    value_dim: int | None = None
    window: int | None = None
    keys: int | None = None
    sample: int | None = None
    shaped: bool = False

    split_parameters = 0
    repeated_parameters = 0

    @property
    def key_tokens(self) -> int:
        """Tokens that have keys and values."""
        return self.tokens if self.keys is None else self.keys

    @property
    def sample_tokens(self) -> int:
        """Tokens of a text that see each other: its sample's, or all that have keys."""
        return self.key_tokens if self.sample is None else min(self.sample, self.key_tokens)

    @property
    def output_dim(self) -> int:
        """Width of a value's head, and so of an output's."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def mean_dim(self) -> float:
        """Mean inner width of both products, which sets their FLOPs: (d + d_v) / 2."""
        return self.head_dim if self.value_dim is None else (self.head_dim + self.value_dim) / 2

    @property
    def unwindowed(self) -> float:
        """Share of the full square of scores without a window: a causal half, or all.

        Of the square are left those of samples: (s / l) l^2 of s^2 scores.
        """
        return (0.5 if self.causal else 1.0) * self.sample_tokens / self.key_tokens

    @property
    def seen(self) -> float:
        """Share of the full square of scores that is computed: causal 1/2, windowed less.

        A kernel computes whole tiles, so a tile of queries meets its window and a tile more.
        """
        if self.window is None:
            return self.unwindowed
        return min((self.window + WINDOW_TILE) / self.key_tokens, self.unwindowed)

    def flops(self, batch: int) -> int:
        """Forward FLOPs of both products on the full square, 2 b s s_k a (d + d_v).

        The full square is the convention of the Megatron papers even for causal attention.
        """
        pairs = batch * self.tokens * self.key_tokens
        return 2 * pairs * self.heads * (self.head_dim + self.output_dim)
