"""Which Hugging Face family a transformer is of: the one that has all of its switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import isclose, sqrt

from parsim.errors import ModelError
from parsim.model.config.families import BERT_CLASSES, FAMILY_FLAGS
from parsim.model.spec import TransformerSpec

_USUAL = ("tied_embeddings", "activation")
_BIASES = ("qkv_bias", "projection_bias", "mlp_bias")
_CAPS = ("attention_scale", "attention_cap", "logit_cap", "embedding_scale", "window", "full_every")
_ROUTED = (
    *("norm_topk_prob", "routed_scaling_factor", "shared_expert_ffn_hidden_size"),
    "expert_groups",
)
_BERT = (*_USUAL, "pooler", "head", "token_types", "causal")

# switches that members of a family set each for itself
_FREE: Mapping[str, frozenset[str]] = {
    name: frozenset((*_USUAL, *others))
    for name, others in {
        "gpt2": (),
        "bert": _BERT,
        "roberta": _BERT,
        "llama": _BIASES,
        "qwen2": (),
        "mistral": ("window",),
        "qwen3": (),
        "phi3": ("window", "rope_head_dim"),
        "gemma": (*_BIASES, "embedding_scale"),
        "gemma2": (*_BIASES, *_CAPS),
        "gemma3_text": (*_BIASES, *_CAPS, "window_rope_theta"),
        "glm4": ("qkv_bias", "rope_head_dim"),
        "granite": (
            *(*_BIASES, "embedding_scale", "residual_scale", "attention_scale"),
            "logit_scale",
        ),
        "smollm3": (*_BIASES, "unrotated_every"),
        "stablelm": ("qkv_bias", "rope_head_dim"),
        "starcoder2": (*_BIASES, "window"),
        "nemotron": (*_BIASES, "rope_head_dim"),
        "gpt_neox": ("qkv_bias", "projection_bias", "rope_head_dim", "parallel_block"),
        "opt": (),
        "bloom": (),
        "mixtral": ("router_aux_loss_coef",),
        "qwen3_moe": ("router_aux_loss_coef", "norm_topk_prob"),
        "deepseek_v2": (*_ROUTED, "kv_lora_rank", "rope_head_dim"),
        "deepseek_v3": (*_ROUTED, "kv_lora_rank", "rope_head_dim"),
        "glm4_moe": (*_ROUTED, "rope_head_dim", "qk_norm", "qkv_bias"),
    }.items()
}
_MIXTURES = ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe")


_SWITCHES = (
    *("rope", "rms_norm", "gated_mlp", "qkv_bias", "projection_bias", "mlp_bias", "post_norm"),
    *("tied_embeddings", "causal", "pooler", "head", "token_types", "qk_norm", "norm_topk_prob"),
    *("router_aux_loss_coef", "kv_lora_rank", "layer_pattern", "predicted_tokens", "window"),
    *("shared_expert_ffn_hidden_size", "expert_groups", "router_scoring", "router_bias"),
    *("routed_scaling_factor", "activation", "offset_norms", "embedding_norm", "parallel_block"),
    *("embedding_scale", "residual_scale", "attention_scale", "logit_scale", "attention_cap"),
    *("logit_cap", "rope_interleaved", "window_rope_theta", "unrotated_every", "alibi"),
    *("first_position", "rope_head_dim", "norms_after", "full_every"),
)


_DEFAULTS = {field.name: field.default for field in fields(TransformerSpec)}


def family_of(spec: TransformerSpec) -> str:
    """The Hugging Face model type that a model is.

    Raises:
        ModelError: no family has all of its switches.
    """
    kinds = [kind for kind in _FREE if (kind in _MIXTURES) == (spec.num_experts > 0)]
    unlike = {kind: _differences(spec, kind) for kind in kinds}
    fitting = [kind for kind, names in unlike.items() if not names]
    if fitting:
        return fitting[0]
    nearest = min(unlike, key=lambda kind: len(unlike[kind]))
    values = ", ".join(f"{name}={getattr(spec, name)}" for name in unlike[nearest])
    raise ModelError(
        f"{spec.name} is of no Hugging Face family that parsim writes; the nearest, {nearest}, "
        f"differs in {values}"
    )


def _differences(spec: TransformerSpec, kind: str) -> list[str]:
    """Switches in which a model differs from all members of a family."""
    names = [
        name
        for name in _SWITCHES
        if name not in _FREE[kind]
        and getattr(spec, name) != FAMILY_FLAGS[kind].get(name, _DEFAULTS[name])
    ]
    return [*names, *(_NEEDED[kind](spec) if kind in _NEEDED else [])]


def _equal_heads(spec: TransformerSpec) -> list[str]:
    """Sizes that GPT-2 and BERT do not set apart."""
    whole = spec.num_attention_heads * spec.head_dim == spec.hidden_size
    shared = spec.num_key_value_heads != spec.num_attention_heads
    names = ["num_key_value_heads"] if shared else []
    return names if whole else [*names, "head_dim"]


def _bert(spec: TransformerSpec) -> list[str]:
    known = (spec.pooler, spec.head) in BERT_CLASSES.values()
    return [*_equal_heads(spec), *([] if known else ["pooler", "head"])]


def _llama(spec: TransformerSpec) -> list[str]:
    return [] if spec.qkv_bias == spec.projection_bias else ["qkv_bias", "projection_bias"]


def _mixtral(spec: TransformerSpec) -> list[str]:
    names = ["dense_layers"] if spec.dense_layers else []
    return names if spec.expert_every == 1 else [*names, "expert_every"]


def _qwen3_moe(spec: TransformerSpec) -> list[str]:
    return ["dense_layers", "expert_every"] if spec.dense_layers and spec.expert_every > 1 else []


def _deepseek(spec: TransformerSpec) -> list[str]:
    names = [] if spec.kv_lora_rank else ["kv_lora_rank"]
    whole = spec.shared_expert_ffn_hidden_size % spec.expert_ffn_hidden_size == 0
    return names if whole else [*names, "shared_expert_ffn_hidden_size"]


def _deepseek_v2(spec: TransformerSpec) -> list[str]:
    return [*_deepseek(spec), *(["norm_topk_prob"] if spec.norm_topk_prob else [])]


def _glm4_moe(spec: TransformerSpec) -> list[str]:
    whole = spec.shared_expert_ffn_hidden_size % spec.expert_ffn_hidden_size == 0
    names = [] if whole else ["shared_expert_ffn_hidden_size"]
    return names if spec.expert_every == 1 else [*names, "expert_every"]


def _equal_biases(spec: TransformerSpec) -> list[str]:
    return list(_BIASES) if len({getattr(spec, name) for name in _BIASES}) > 1 else []


def _gemma(spec: TransformerSpec) -> list[str]:
    named = [name for name in ("mlp_bias",) if getattr(spec, name)]
    scaled = isclose(spec.embedding_scale, sqrt(spec.hidden_size), rel_tol=1e-6)
    names = [*_llama(spec), *named, *([] if scaled else ["embedding_scale"])]
    scores = (spec.attention_scale or spec.head_dim**-0.5) ** -2  # a whole number in their files
    whole = isclose(scores, round(scores), rel_tol=1e-6)
    return names if whole else [*names, "attention_scale"]


def _bloom(spec: TransformerSpec) -> list[str]:
    names = [] if spec.ffn_hidden_size == 4 * spec.hidden_size else ["ffn_hidden_size"]
    usual = [] if spec.activation_kind == "gelu_tanh" else ["activation"]
    return [*_equal_heads(spec), *names, *usual]


_NEEDED: Mapping[str, Callable[[TransformerSpec], list[str]]] = {
    **dict.fromkeys(("gpt2", "opt", "gpt_neox"), _equal_heads),
    **dict.fromkeys(("bert", "roberta"), _bert),
    **dict.fromkeys(("llama", "granite", "smollm3", "nemotron"), _llama),
    **dict.fromkeys(("gemma", "gemma2", "gemma3_text"), _gemma),
    "starcoder2": _equal_biases,
    "bloom": _bloom,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek,
    "glm4_moe": _glm4_moe,
}
