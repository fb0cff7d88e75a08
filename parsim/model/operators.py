"""What a layer does: operators with exact parameters, traffic and saved activations.

An operator holds its full, unsharded sizes for one sample and how tensor parallelism splits it; the
cost model applies micro-batch size and degrees later, so that one operator serves thousands of
plans. `tokens` are the rows of a sample that it works on: a sequence's tokens, an image's patches.
"Value" below means one number in the activation precision (2 bytes in bf16), "mask" one byte.

Source of the split and of what is saved for backward: Shoeybi et al. 2019 (arXiv:1909.08053);
Korthikanti et al. 2022 (arXiv:2205.05198), section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from parsim.model.networks import Convolution, Recurrent
from parsim.model.shared_heads import SharedHeads


class Split(Enum):
    """How tensor parallelism divides a matrix: by outputs, by inputs, or not at all."""

    COLUMN = "column"
    ROW = "row"
    NONE = "none"


class Region(Enum):
    """Where an operator sits: inside the tensor-parallel region its width is divided by tp.

    In the sequence region every tensor-parallel rank repeats the work on all tokens, unless
    sequence parallelism divides the tokens by tp.
    """

    TENSOR = "tensor"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Y = X W + b with W of shape (inputs, outputs).

    Backward is two more GEMMs, for X and for W. The input is kept for backward, unless another
    operator keeps the same tensor and `keeps_input` is False. `owns_weight` is
    False for an output projection tied to the embedding: its FLOPs count, its parameters do not.
    `per_sample` marks a projection whose rows context parallelism does not divide (BERT's pooler,
    of one token), `on_sequence` one that is not split and works on the tokens of the sequence
    region. `shared` are key-value heads among the outputs, which cannot be divided further.
    """

    name: str
    tokens: int
    inputs: int
    outputs: int
    split: Split
    bias: bool
    owns_weight: bool = True
    per_sample: bool = False
    on_sequence: bool = False
    keeps_input: bool = True
    shared: SharedHeads | None = None

    @property
    def split_parameters(self) -> int:
        """Parameters that tensor parallelism divides (a row-split bias is on every rank)."""
        weight = self.inputs * self.outputs if self.owns_weight else 0
        column_bias = self.outputs if self.bias and self.split is Split.COLUMN else 0
        return weight + column_bias if self.split is not Split.NONE else 0

    @property
    def repeated_parameters(self) -> int:
        """Parameters that every tensor-parallel rank holds."""
        bias = self.outputs if self.bias else 0
        if self.split is Split.NONE:
            return self.inputs * self.outputs * self.owns_weight + bias
        return bias if self.split is Split.ROW else 0

    @property
    def copied_parameters(self) -> int:
        """Split parameters of key-value heads, which more ranks than heads hold in copies."""
        if self.shared is None or self.shared.gathered:
            return 0
        return (self.inputs + self.bias) * self.shared.width

    def flops(self, batch: int) -> int:
        """Forward FLOPs of a batch: 2 per weight and token."""
        return 2 * self.inputs * self.outputs * batch * self.tokens


WINDOW_TILE = 128
"""Keys of a tile of fused attention, by which a window is rounded up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """softmax(Q K^T) V over `heads` query heads that share `kv_heads` keys and values.

    `fused` is a flash kernel: scores stay on chip, Q, K, V and one fp32 number per token and head
    are kept. Unfused keeps the softmax output and, with `dropout`, its mask and dropped copy.
    `value_dim` is the width of a value's head where it is not `head_dim`, and of `window` tokens a
    query sees the last ones only (None: all before it). `keys` are the tokens of the text that
    queries look at where it is another one (None: their own).
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

    split_parameters = 0
    repeated_parameters = 0

    @property
    def key_tokens(self) -> int:
        """Tokens that have keys and values."""
        return self.tokens if self.keys is None else self.keys

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
        """Share of the full square of scores without a window: a causal half, or all."""
        return 0.5 if self.causal else 1.0

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """`count` feed-forward networks of width f; a router picks `top_k` of them for each token.

    Router: (width, count). An expert: (width, f), twice if gated, then (f, width); with `bias` a
    bias each. A token's experts are of `top_groups` of `groups` groups of neighbours.
    Experts are divided over expert-parallel ranks, their widths over expert-tensor ones,
    and the router is on every rank.

    Source: Shazeer et al. 2017 (arXiv:1701.06538); Jiang et al. 2024 (arXiv:2401.04088).
    """

    tokens: int
    count: int
    top_k: int
    width: int
    ffn_hidden_size: int
    gated: bool
    bias: bool
    groups: int = 1
    top_groups: int = 1

    split_parameters = 0

    @property
    def halves(self) -> int:
        """Outputs of the first product over f."""
        return 2 if self.gated else 1

    @property
    def repeated_parameters(self) -> int:
        """The router, on every rank."""
        return self.width * self.count + (self.count if self.bias else 0)

    @property
    def one_expert(self) -> int:
        """Parameters of one expert."""
        weights = (self.halves + 1) * self.width * self.ffn_hidden_size
        return weights + (self.halves * self.ffn_hidden_size + self.width) * self.bias

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts, without the router."""
        return self.count * self.one_expert

    def flops(self, batch: int) -> int:
        """Forward FLOPs of a batch: 2 per token and weight that it meets."""
        each = 2 * (self.halves + 1) * self.width * self.ffn_hidden_size
        return (2 * self.width * self.count + self.top_k * each) * batch * self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """Something whose seconds were measured: a module that has no formula, a profile's layer.

    `forward` and `backward` are seconds of a sample on the device named in the profile, behind
    `forward_call` and `backward_call` of each call, its launch among them; `saved` are the values
    that it keeps for backward. Only that device's predictions may use it.

    Leaves out: what a batch of another size gains or loses: seconds lie on a line over it.
    """

    name: str
    forward: float
    backward: float
    saved: int
    repeated_parameters: int
    forward_call: float = 0.0
    backward_call: float = 0.0

    tokens = 1
    split_parameters = 0


Operator = (
    Linear | Attention | Elementwise | Lookup | Loss | Experts | Convolution | Recurrent | Timed
)


def forward_flops(op: Operator, batch: int) -> int:
    """Model FLOPs of an operator's forward pass of `batch` samples (matrix products only)."""
    counted = Linear | Attention | Experts | Convolution | Recurrent
    return op.flops(batch) if isinstance(op, counted) else 0
