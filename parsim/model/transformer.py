"""Transformer families as layers: GPT-2/3, Llama 2/3 and its kin, mixtures of experts, BERT.

Widths: h hidden, a heads, k key-value heads, d head size, f feed-forward, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from parsim.model.adapters import with_adapters
from parsim.model.attention import attention, mamba
from parsim.model.layer import Layer
from parsim.model.model import Model
from parsim.model.operators import Linear, Lookup, Loss, Operator, Region, Split
from parsim.model.spec import Head, RopeScaling, TransformerSpec
from parsim.model.spec_rules import check_spec, with_options
from parsim.model.transformer_operators import (
    LOGITS,
    elementwise,
    experts,
    mlp,
    norm,
    product,
    scale,
)

__all__ = (
    "Head",
    "RopeScaling",
    "TransformerSpec",
    "build_transformer",
    "check_spec",
    "with_options",
)

BLOCK, EXPERT_BLOCK = "block", "expert_block"
"""Names of the chain's usual layers; those of all its kinds end with the first."""


def build_transformer(spec: TransformerSpec) -> Model:
    """Turn a spec into a Model whose parameter count is exact."""
    check_spec(spec)
    layers = (_embedding(spec), *_blocks(spec), _head(spec))
    model = Model(
        name=spec.name,
        layers=layers,
        tokens=spec.seq_len,
        tied_embeddings=spec.tied_embeddings and spec.head != "none",
    )
    if not spec.lora_rank:
        return model
    return with_adapters(model, spec.lora_rank, spec.lora_targets, spec.modules_to_save)


def _blocks(spec: TransformerSpec) -> tuple[Layer, ...]:
    """Layers between embedding and head in order; equal ones are the same object."""
    if spec.layer_pattern:
        parts = {part: _part(spec, part) for part in sorted(set(spec.layer_pattern))}
        return tuple(parts[part] for part in spec.layer_pattern)
    known: dict[tuple[bool, bool, bool], Layer] = {}
    blocks = []
    for number in range(spec.num_layers):
        sparse, near = spec.has_experts(number), spec.has_window(number)
        kind = (sparse, near, spec.turns(number))
        if kind not in known:
            name = EXPERT_BLOCK if sparse else BLOCK
            behind = experts(spec) if sparse else mlp(spec)
            known[kind] = _block(spec, name, *attention(spec, near=near, turns=kind[2]), *behind)
        blocks.append(known[kind])
    return (*blocks, *[_prediction(spec)] * spec.predicted_tokens)


def _block(spec: TransformerSpec, name: str, *operators: Operator) -> Layer:
    """A layer with the model's width at both borders."""
    values = spec.seq_len * spec.hidden_size
    return Layer(name=name, parts=operators, inputs=values, outputs=values)


def _prediction(spec: TransformerSpec) -> Layer:
    """A layer that predicts one more token: two norms, a projection of both, a block, logits.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2; embedding and logits' weights are shared.
    Leaves out: the lookup of the token, the memory of its logits.
    """
    h = spec.hidden_size
    return _block(
        spec,
        "prediction_block",
        norm(spec, "hidden_norm"),
        norm(spec, "token_norm"),
        product(spec, "joined", 2 * h, h, Split.COLUMN),
        *attention(spec, near=False),
        *(experts(spec) if spec.num_experts else mlp(spec)),
        norm(spec, "final_norm"),
        _logits(spec, bias=False, owns_weight=False),
        Loss(tokens=spec.seq_len, vocab_size=spec.vocab_rows),
    )


def _part(spec: TransformerSpec, part: str) -> Layer:
    """A layer of a hybrid, by its letter."""
    if part == "M":
        return _block(spec, "mamba_block", *mamba(spec))
    if part == "*":
        return _block(spec, "attention_block", *attention(spec, near=False))
    if part == "E":
        return _block(spec, EXPERT_BLOCK, *experts(spec))
    return _block(spec, "mlp_block", *mlp(spec))


def _embedding(spec: TransformerSpec) -> Layer:
    """The tables of tokens and positions, and what stands between them and the layers."""
    lookup = Lookup(
        tokens=spec.seq_len,
        vocab_size=spec.vocab_rows,
        width=spec.hidden_size,
        positions=spec.positions,
        token_types=spec.token_types,
    )
    extra: tuple[Operator, ...] = scale(spec, "embedding_scale", spec.embedding_scale)
    if spec.post_norm or spec.embedding_norm:
        extra += (norm(spec, "embedding_norm"),)
    if spec.dropout:
        # read x, write y and the mask; backward reads dy and the mask, writes dx
        extra += (replace(elementwise(spec, "embedding_dropout", 2, 2), mask=1),)
    return Layer(
        name="embedding",
        parts=(lookup, *extra),
        inputs=spec.seq_len,
        outputs=spec.seq_len * spec.hidden_size,
        outer=True,
    )


def _head(spec: TransformerSpec) -> Layer:
    """What stands behind the last layer: norm, pooler, and the product to the words."""
    h, masked = spec.hidden_size, spec.head == "mlm"
    ops: list[Operator] = [] if spec.post_norm else [norm(spec, "final_norm")]
    if spec.pooler:
        pooler = product(spec, "pooler", h, h, Split.NONE, bias=True)
        ops.append(replace(pooler, tokens=1, per_sample=True))
    if masked:
        # BERT's masked-language head: dense h x h, GELU, norm, then the tied output projection
        ops.append(product(spec, "transform", h, h, Split.NONE, bias=True))
        ops.append(elementwise(spec, "transform_gelu", 2, 3, saved=1))
        ops.append(norm(spec, "transform_norm"))
    if spec.head != "none":
        ops.extend(_to_words(spec, bias=masked))
    values = spec.seq_len * h
    return Layer(
        name="head",
        parts=tuple(ops),
        inputs=values,
        outputs=values if spec.head == "none" else 1,
        outer=True,
    )


def _to_words(spec: TransformerSpec, *, bias: bool) -> Iterator[Operator]:
    """Logits, scaled and capped as the model has them, and their loss."""
    yield from scale(spec, "logit_scale", spec.logit_scale)
    yield _logits(spec, bias=bias, owns_weight=not spec.tied_embeddings)
    if spec.logit_cap:  # read and written; backward reads the gradient and the kept logits
        width = spec.vocab_rows
        yield elementwise(spec, "logit_cap", 2, 3, width=width, region=Region.TENSOR, saved=1)
    yield Loss(tokens=spec.seq_len, vocab_size=spec.vocab_rows)


def _logits(spec: TransformerSpec, *, bias: bool, owns_weight: bool) -> Linear:
    """The output projection, whose weight may be the embedding's table."""
    logits = product(spec, LOGITS, spec.hidden_size, spec.vocab_rows, Split.COLUMN, bias=bias)
    return replace(logits, owns_weight=owns_weight)
