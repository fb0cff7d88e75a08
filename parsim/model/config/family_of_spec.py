"""Which Hugging Face family a transformer is of: the one that has all of its switches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

from parsim.errors import ModelError
from parsim.model.config.families import BERT_CLASSES, FAMILY_FLAGS
from parsim.model.spec import TransformerSpec

# switches that members of a family set each for itself
_FREE: Mapping[str, frozenset[str]] = {
    "gpt2": frozenset({"tied_embeddings"}),
    "bert": frozenset({"tied_embeddings", "pooler", "head", "token_types", "causal"}),
    "llama": frozenset({"tied_embeddings", "qkv_bias", "projection_bias", "mlp_bias"}),
    "qwen2": frozenset({"tied_embeddings"}),
    "mistral": frozenset({"tied_embeddings", "window"}),
    "mixtral": frozenset({"tied_embeddings", "router_aux_loss_coef"}),
    "qwen3": frozenset({"tied_embeddings"}),
    "qwen3_moe": frozenset({"tied_embeddings", "router_aux_loss_coef", "norm_topk_prob"}),
    **dict.fromkeys(
        ("deepseek_v2", "deepseek_v3"),
        frozenset(
            {
                *("tied_embeddings", "kv_lora_rank", "norm_topk_prob", "routed_scaling_factor"),
                *("shared_expert_ffn_hidden_size", "expert_groups"),
            }
        ),
    ),
}


_SWITCHES = (
    *("rope", "rms_norm", "gated_mlp", "qkv_bias", "projection_bias", "mlp_bias", "post_norm"),
    *("tied_embeddings", "causal", "pooler", "head", "token_types", "qk_norm", "norm_topk_prob"),
    *("router_aux_loss_coef", "kv_lora_rank", "layer_pattern", "predicted_tokens", "window"),
    *("shared_expert_ffn_hidden_size", "expert_groups", "router_scoring", "router_bias"),
    "routed_scaling_factor",
)


_DEFAULTS = {field.name: field.default for field in fields(TransformerSpec)}


def family_of(spec: TransformerSpec) -> str:
    """The Hugging Face model type that a model is.

    Raises:
        ModelError: no family has all of its switches.
    """
    kinds = (
        ("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3")
        if spec.num_experts
        else ("gpt2", "bert", "llama", "qwen2", "mistral", "qwen3")
    )
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
    return [*names, *_NEEDED[kind](spec)]


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


_NEEDED: Mapping[str, Callable[[TransformerSpec], list[str]]] = {
    "gpt2": _equal_heads,
    "bert": _bert,
    "llama": _llama,
    "qwen2": lambda _: [],
    "mistral": lambda _: [],
    "qwen3": lambda _: [],
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek,
}
