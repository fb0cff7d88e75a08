"""Megatron-LM's arguments of a model."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan

Flag = tuple[str, object]
"""A flag and its value; True is a flag that stands alone."""
USUAL_PADDING = 128
"""Megatron's default of --make-vocab-size-divisible-by."""


def model_flags(spec: TransformerSpec, plan: Plan) -> Iterator[Flag]:
    """Sizes of the model, and what its layers have."""
    yield ("--num-layers", spec.num_layers)
    yield ("--hidden-size", spec.hidden_size)
    yield ("--num-attention-heads", spec.num_attention_heads)
    yield ("--kv-channels", spec.head_dim)
    yield ("--ffn-hidden-size", spec.ffn_hidden_size)
    if spec.num_key_value_heads != spec.num_attention_heads:
        yield ("--group-query-attention", True)
        yield ("--num-query-groups", spec.num_key_value_heads)
    yield ("--seq-length", spec.seq_len)
    yield ("--vocab-size", spec.vocab_size)
    unit = padding(spec, plan.tp)
    if unit not in (None, USUAL_PADDING):
        yield ("--make-vocab-size-divisible-by", unit)
    yield ("--max-position-embeddings", max(spec.positions, spec.seq_len))
    yield ("--position-embedding-type", "rope" if spec.rope else "learned_absolute")
    if spec.rms_norm:
        yield ("--normalization", "RMSNorm")
    if spec.gated_mlp:
        yield ("--swiglu", True)
    if not spec.mlp_bias:
        yield ("--disable-bias-linear", True)
    if not spec.tied_embeddings:
        yield ("--untie-embeddings-and-output-weights", True)
    if spec.num_experts:
        yield ("--num-experts", spec.num_experts)
        yield ("--moe-router-topk", spec.experts_per_token)
        if spec.expert_groups > 1:
            yield ("--moe-router-num-groups", spec.expert_groups)
            yield ("--moe-router-group-topk", spec.groups_per_token)
        yield ("--moe-ffn-hidden-size", spec.expert_ffn_hidden_size)
        if spec.shared_expert_ffn_hidden_size:
            yield ("--moe-shared-expert-intermediate-size", spec.shared_expert_ffn_hidden_size)


def padding(spec: TransformerSpec, tp: int) -> int | None:
    """What Megatron must pad the vocabulary to, for each tensor rank, to store the model's rows.

    Its default where that does, else the largest power of two, else the smallest number; None where
    no number does, or only one that leaves a rank's rows no multiple of 8, as fast products need.
    """
    rows, missing = spec.vocab_rows, spec.vocab_rows - spec.vocab_size
    if rows % tp or rows // tp % 8:
        return None
    each = rows // tp
    fits = [unit for unit in range(1, each + 1) if each % unit == 0 and unit * tp > missing]
    usual = [USUAL_PADDING >> power for power in range(8)]
    return next((unit for unit in usual if unit in fits), fits[0])


def vocabulary_unsaid(spec: TransformerSpec, tp: int) -> Iterator[str]:
    """A comment where Megatron pads the vocabulary to other rows than were predicted."""
    if padding(spec, tp) is None:
        unit = USUAL_PADDING * tp
        rows = -(-spec.vocab_size // unit) * unit
        yield f"# predicted with {spec.vocab_rows} rows of the vocabulary; Megatron pads them to"
        yield f"# {rows}: to predict those, --set model.padded_vocab_size={rows}"
