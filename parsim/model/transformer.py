"""Transformer families as operators: GPT-2/3, Llama 2/3 and its kin, BERT.

Widths: h hidden, a heads, k key-value heads, d head size, f feed-forward, V vocabulary.
Traffic of a memory-bound operator is what an unfused-but-sensible kernel must read and write, in
values per token and width element; a software profile scales it (parsim/cost/software.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from parsim.errors import ModelError
from parsim.model.model import Model
from parsim.model.operators import (
    Attention,
    Elementwise,
    Layer,
    Linear,
    Lookup,
    Loss,
    Operator,
    Region,
    Split,
)

Head = Literal["lm", "mlm", "none"]

MAX_LAYERS = 100_000
"""More layers than any transformer has: a slip in a file, which would exhaust memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerSpec:
    """Everything that distinguishes one dense transformer from another.

    `padded_vocab_size` rows are stored and computed (None: no padding). `positions` is the length
    of a learned position table (0: none). `post_norm` is BERT's order, which has a norm after the
    embedding and none before the head. `fused_attention` and `dropout` change traffic and memory.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    ffn_hidden_size: int
    vocab_size: int
    seq_len: int
    padded_vocab_size: int | None = None
    positions: int = 0
    token_types: int = 0
    rope: bool = False
    rms_norm: bool = False
    gated_mlp: bool = False
    qkv_bias: bool = True
    projection_bias: bool = True
    mlp_bias: bool = True
    post_norm: bool = False
    tied_embeddings: bool = True
    causal: bool = True
    pooler: bool = False
    head: Head = "lm"
    fused_attention: bool = True
    dropout: bool = False

    @property
    def vocab_rows(self) -> int:
        """Rows of the stored vocabulary table."""
        return self.padded_vocab_size or self.vocab_size

    @property
    def norm_parameters(self) -> int:
        """Weight, and bias where the norm has one."""
        return self.hidden_size * (1 if self.rms_norm else 2)


def with_options(spec: TransformerSpec, **changes: object) -> TransformerSpec:
    """Return the spec with some fields replaced, checked again."""
    changed = replace(spec, **changes)  # type: ignore[arg-type]
    check_spec(changed)
    return changed


def check_spec(spec: TransformerSpec) -> None:
    """Raise ModelError where sizes contradict each other."""
    for field in ("num_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                  "head_dim", "ffn_hidden_size", "vocab_size", "seq_len"):  # fmt: skip
        if getattr(spec, field) < 1:
            raise ModelError(f"{field}={getattr(spec, field)} must be at least 1")
    if spec.num_layers > MAX_LAYERS:
        raise ModelError(f"num_layers={spec.num_layers} is above {MAX_LAYERS}")
    if spec.num_attention_heads % spec.num_key_value_heads:
        raise ModelError(
            f"num_key_value_heads={spec.num_key_value_heads} does not divide "
            f"num_attention_heads={spec.num_attention_heads}"
        )
    if spec.padded_vocab_size is not None and spec.padded_vocab_size < spec.vocab_size:
        raise ModelError(
            f"padded_vocab_size={spec.padded_vocab_size} is below vocab_size={spec.vocab_size}"
        )
    if 0 < spec.positions < spec.seq_len:
        raise ModelError(
            f"seq_len={spec.seq_len} is longer than the {spec.positions} learned positions; "
            f"use seq_len <= {spec.positions}"
        )


def build_transformer(spec: TransformerSpec) -> Model:
    """Turn a spec into a Model whose parameter count is exact."""
    check_spec(spec)
    return Model(
        name=spec.name,
        seq_len=spec.seq_len,
        vocab_size=spec.vocab_rows,
        hidden_size=spec.hidden_size,
        embedding=_embedding(spec),
        layers=(Layer(name="block", operators=(*_attention(spec), *_mlp(spec))),) * spec.num_layers,
        head=_head(spec),
        tied_embeddings=spec.tied_embeddings and spec.head != "none",
    )


def _embedding(spec: TransformerSpec) -> Layer:
    lookup = Lookup(
        vocab_size=spec.vocab_rows,
        width=spec.hidden_size,
        positions=spec.positions,
        token_types=spec.token_types,
    )
    extra: tuple[Operator, ...] = (_norm(spec, "embedding_norm"),) if spec.post_norm else ()
    if spec.dropout:
        # read x, write y and the mask; backward reads dy and the mask, writes dx
        extra += (_sequence(spec, "embedding_dropout", 2, 2, mask=1),)
    return Layer(name="embedding", operators=(lookup, *extra))


def _attention(spec: TransformerSpec) -> tuple[Operator, ...]:
    h, d = spec.hidden_size, spec.head_dim
    q_width, kv_width = spec.num_attention_heads * d, spec.num_key_value_heads * d
    qkv_width = q_width + 2 * kv_width
    before: tuple[Operator, ...] = () if spec.post_norm else (_norm(spec, "attention_norm"),)
    after: tuple[Operator, ...] = (_norm(spec, "attention_norm"),) if spec.post_norm else ()
    rope = (_tensor("rope", q_width + kv_width, 2, 2),) if spec.rope else ()
    # an unfused kernel wants (batch, head) outermost: two tensors of width h are copied to get
    # there and back, the others are views (8 bytes per h in the traffic count of the 22B layer)
    transposes = () if spec.fused_attention else (_tensor("transpose", 2 * h, 2, 2, launches=2),)
    return (
        *before,
        Linear(name="qkv", inputs=h, outputs=qkv_width, split=Split.COLUMN, bias=spec.qkv_bias),
        *rope,
        *transposes,
        Attention(
            heads=spec.num_attention_heads,
            kv_heads=spec.num_key_value_heads,
            head_dim=d,
            causal=spec.causal,
            fused=spec.fused_attention,
            dropout=spec.dropout,
        ),
        Linear(
            name="projection",
            inputs=q_width,
            outputs=h,
            split=Split.ROW,
            bias=spec.projection_bias,
        ),
        _residual(spec, "attention_residual", spec.projection_bias),
        *after,
    )


def _mlp(spec: TransformerSpec) -> tuple[Operator, ...]:
    h, f = spec.hidden_size, spec.ffn_hidden_size
    halves = 2 if spec.gated_mlp else 1
    # GELU: read x, write y; backward reads dy and x, writes dx. SwiGLU reads both halves, writes
    # one; backward reads dy and both halves, writes both. The input(s) are kept for backward.
    activation = _tensor(
        "swiglu" if spec.gated_mlp else "gelu", f, 1 + halves, 1 + 2 * halves, saved=halves
    )
    norm = _norm(spec, "mlp_norm")
    block: tuple[Operator, ...] = (
        Linear(name="fc1", inputs=h, outputs=halves * f, split=Split.COLUMN, bias=spec.mlp_bias),
        activation,
        Linear(name="fc2", inputs=f, outputs=h, split=Split.ROW, bias=spec.mlp_bias),
        _residual(spec, "mlp_residual", spec.mlp_bias),
    )
    return (*block, norm) if spec.post_norm else (norm, *block)


def _head(spec: TransformerSpec) -> Layer:
    h = spec.hidden_size
    ops: list[Operator] = [] if spec.post_norm else [_norm(spec, "final_norm")]
    if spec.pooler:
        pooler = Linear(
            name="pooler", inputs=h, outputs=h, split=Split.NONE, bias=True, per_sequence=True
        )
        ops.append(pooler)
    if spec.head == "mlm":
        # BERT's masked-language head: dense h x h, GELU, norm, then the tied output projection
        ops.append(Linear(name="transform", inputs=h, outputs=h, split=Split.NONE, bias=True))
        ops.append(_sequence(spec, "transform_gelu", 2, 3, saved=1))
        ops.append(_norm(spec, "transform_norm"))
    if spec.head != "none":
        ops.append(
            Linear(
                name="logits",
                inputs=h,
                outputs=spec.vocab_rows,
                split=Split.COLUMN,
                bias=spec.head == "mlm",
                owns_weight=not spec.tied_embeddings,
            )
        )
        ops.append(Loss(vocab_size=spec.vocab_rows))
    return Layer(name="head", operators=tuple(ops))


def _norm(spec: TransformerSpec, name: str) -> Elementwise:
    # forward reads x, writes y; backward reads dy and x twice (weight gradient apart), writes dx
    return Elementwise(
        name=name,
        width=spec.hidden_size,
        region=Region.SEQUENCE,
        forward=2,
        backward=4,
        saved=1,
        launches=(1, 2),
        repeated_parameters=spec.norm_parameters,
    )


def _residual(spec: TransformerSpec, name: str, bias: bool) -> Elementwise:
    # forward reads the branch and the residual, writes the sum (and the dropout mask); backward
    # adds the two gradients (2 reads, 1 write), reads again for the bias, drops (1 read, 1 write)
    mask = 1 if spec.dropout else 0
    backward = 3 + (1 if bias else 0) + (2 if spec.dropout else 0)
    return _sequence(spec, name, 3, backward, mask=mask, launches=(1, 1 + bias + mask))


def _sequence(
    spec: TransformerSpec,
    name: str,
    forward: float,
    backward: float,
    *,
    saved: float = 0,
    mask: float = 0,
    launches: tuple[int, int] = (1, 1),
) -> Elementwise:
    return Elementwise(
        name=name,
        width=spec.hidden_size,
        region=Region.SEQUENCE,
        forward=forward,
        backward=backward,
        saved=saved,
        forward_mask=mask,
        backward_mask=mask,
        saved_mask=mask,
        launches=launches,
    )


def _tensor(
    name: str, width: int, forward: float, backward: float, saved: float = 0, launches: int = 1
) -> Elementwise:
    return Elementwise(
        name=name,
        width=width,
        region=Region.TENSOR,
        forward=forward,
        backward=backward,
        saved=saved,
        launches=(launches, launches),
    )
