"""Megatron-LM's arguments of a model."""

from __future__ import annotations

from collections.abc import Iterator

from parsim.model.transformer import TransformerSpec
from parsim.plan import Plan

Flag = tuple[str, object]
"""A flag and its value; True is a flag that stands alone."""


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
