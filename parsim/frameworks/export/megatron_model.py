"""Megatron-LM's arguments of a model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    yield from _attention(spec)
    yield ("--ffn-hidden-size", spec.ffn_hidden_size)
    yield ("--seq-length", spec.seq_len)
    yield ("--vocab-size", spec.vocab_size)
    unit = padding(spec, plan.tp)
    if unit not in (None, USUAL_PADDING):
        yield ("--make-vocab-size-divisible-by", unit)
    yield from _positions(spec)
    yield from _kinds_of_layers(spec)
    if spec.num_experts:
        yield from _experts(spec)
    if spec.predicted_tokens:
        yield ("--mtp-num-layers", spec.predicted_tokens)


def _kinds_of_layers(spec: TransformerSpec) -> Iterator[Flag]:
    """Norms, gates, biases and dropout of the layers, where they are not Megatron's usual ones."""
    if spec.rms_norm:
        yield ("--normalization", "RMSNorm")
    if spec.norm_epsilon != 1e-5:
        yield ("--norm-epsilon", spec.norm_epsilon)
    if spec.gated_mlp:
        yield ("--swiglu", True)
    yield from _biases(spec)
    if not spec.tied_embeddings:
        yield ("--untie-embeddings-and-output-weights", True)
    if not spec.dropout:  # Megatron has 0.1 of both
        yield ("--attention-dropout", 0)
        yield ("--hidden-dropout", 0)


def _attention(spec: TransformerSpec) -> Iterator[Flag]:
    """Heads, and how keys and values are made."""
    yield ("--num-attention-heads", spec.num_attention_heads)
    if spec.kv_lora_rank:
        yield ("--multi-latent-attention", True)
        if spec.q_lora_rank:
            yield ("--q-lora-rank", spec.q_lora_rank)
        yield ("--kv-lora-rank", spec.kv_lora_rank)
        yield ("--qk-head-dim", spec.head_dim - spec.rope_head_dim)
        yield ("--qk-pos-emb-head-dim", spec.rope_head_dim)
        yield ("--v-head-dim", spec.value_width)
    else:
        yield ("--kv-channels", spec.head_dim)
    if spec.num_key_value_heads != spec.num_attention_heads:
        yield ("--group-query-attention", True)
        yield ("--num-query-groups", spec.num_key_value_heads)
    if spec.qk_norm or spec.kv_lora_rank:
        yield ("--qk-layernorm", True)
    if not spec.fused_attention:
        yield ("--attention-backend", "unfused")
    yield from _windows(spec)


def _windows(spec: TransformerSpec) -> Iterator[Flag]:
    """Tokens before its own that a token sees, and every which layer sees all others too."""
    if not spec.window:
        return
    yield ("--window-size", f"{spec.window - 1},0")
    if spec.full_every:
        yield ("--window-attn-skip-freq", spec.full_every)


def listed(numbers: Iterable[int]) -> str:
    """A list as a word of a shell."""
    return f"'[{','.join(map(str, numbers))}]'"


def _biases(spec: TransformerSpec) -> Iterator[Flag]:
    """All products add one in Megatron unless it is told otherwise."""
    if not spec.mlp_bias:
        yield ("--disable-bias-linear", True)
        if spec.qkv_bias:
            yield ("--add-qkv-bias", True)


def _positions(spec: TransformerSpec) -> Iterator[Flag]:
    """How tokens know where they stand; --rotary-base takes whole numbers."""
    yield ("--max-position-embeddings", max(spec.positions, spec.seq_len))
    learned = "learned_absolute" if spec.positions else "none"
    yield ("--position-embedding-type", "rope" if spec.rope else learned)
    if spec.rope:
        yield ("--rotary-base", round(spec.rope_theta))


def _experts(spec: TransformerSpec) -> Iterator[Flag]:
    """How many, which layers have them, and the router."""
    yield ("--num-experts", spec.num_experts)
    yield ("--moe-router-topk", spec.experts_per_token)
    if spec.expert_groups > 1:
        yield ("--moe-router-num-groups", spec.expert_groups)
        yield ("--moe-router-group-topk", spec.groups_per_token)
    yield ("--moe-ffn-hidden-size", spec.expert_ffn_hidden_size)
    if spec.shared_expert_ffn_hidden_size:
        yield ("--moe-shared-expert-intermediate-size", spec.shared_expert_ffn_hidden_size)
    sparse = [int(spec.has_experts(layer)) for layer in range(spec.num_layers)]
    if not all(sparse):
        yield ("--moe-layer-freq", listed(sparse))
    if spec.router_scoring != "softmax":
        yield ("--moe-router-score-function", spec.router_scoring)
    if spec.router_bias:
        yield ("--moe-router-enable-expert-bias", True)
    if spec.router_aux_loss_coef:
        yield ("--moe-aux-loss-coeff", spec.router_aux_loss_coef)
    if spec.routed_scaling_factor != 1:
        yield ("--moe-router-topk-scaling-factor", spec.routed_scaling_factor)


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
