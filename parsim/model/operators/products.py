"""Matrix products with a weight: one for all tokens, and those of experts that a router picks."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.model.operators.splits import Split
from parsim.model.shared_heads import SharedHeads


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Y = X W + b with W of shape (inputs, outputs).

    Backward is two more GEMMs, for X and for W. The input is kept for backward, unless another
    operator keeps the same tensor and `keeps_input` is False. `owns_weight` is
    False for an output projection tied to the embedding: its FLOPs count, its parameters do not.
    `per_sample` marks a projection whose rows context parallelism does not divide (BERT's pooler,
    of one token), `on_sequence` one that is not split and works on the tokens of the sequence
    region. `shared` are key-value heads among the outputs, which cannot be divided further. A
    weight that is not `trained` has no gradient, and keeps no input for one. `matrices` says of how
    many that read the same input it is made, as of queries, keys and values.
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
    trained: bool = True
    matrices: int = 1

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
    trained: bool = True

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
