"""Keys of a family's `config.json` beyond those that all of Llama's kin have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parsim.model.spec import TransformerSpec


def _gemma_keys(spec: TransformerSpec) -> dict[str, Any]:
    """What Gemma 2 and 3 do to scores and logits, and which layers see a window."""
    near = spec.window > 0
    kinds = [
        "sliding_attention" if spec.is_local(n) else "full_attention"
        for n in range(spec.num_layers)
    ]
    scale = spec.attention_scale or spec.head_dim**-0.5
    return {
        "layer_types": kinds,
        "sliding_window_pattern": spec.full_every,
        "sliding_window": spec.window if near else None,
        "query_pre_attn_scalar": round(scale**-2),
        "attn_logit_softcapping": spec.attention_cap or None,
        "final_logit_softcapping": spec.logit_cap or None,
        **({"rope_local_base_freq": spec.window_rope_theta} if spec.window_rope_theta else {}),
    }


def _granite_keys(spec: TransformerSpec) -> dict[str, Any]:
    return {
        "embedding_multiplier": spec.embedding_scale,
        "residual_multiplier": spec.residual_scale,
        "attention_multiplier": spec.attention_scale or spec.head_dim**-0.5,
        "logits_scaling": 1.0 / spec.logit_scale,
    }


def _smollm3_keys(spec: TransformerSpec) -> dict[str, Any]:
    turning = [int(spec.turns(layer)) for layer in range(spec.num_layers)]
    return {"no_rope_layer_interval": spec.unrotated_every, "no_rope_layers": turning}


def _phi3_keys(spec: TransformerSpec) -> dict[str, Any]:
    """Published files have words beyond those of a small vocabulary as their defaults."""
    return {"original_max_position_embeddings": spec.rope_original_positions or spec.seq_len}


def _glm4_moe_keys(spec: TransformerSpec) -> dict[str, Any]:
    keys = _deepseek_keys(spec)
    routed = {name: value for name, value in keys.items() if name not in _LATENT_KEYS}
    return {**routed, "use_qk_norm": spec.qk_norm}


_LATENT_KEYS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _mixtral_keys(spec: TransformerSpec) -> dict[str, Any]:
    return {
        "intermediate_size": spec.expert_ffn_hidden_size,
        "num_local_experts": spec.num_experts,
        "num_experts_per_tok": spec.experts_per_token,
        "router_aux_loss_coef": spec.router_aux_loss_coef,
    }


def _qwen3_moe_keys(spec: TransformerSpec) -> dict[str, Any]:
    return {
        "num_experts": spec.num_experts,
        "num_experts_per_tok": spec.experts_per_token,
        "moe_intermediate_size": spec.expert_ffn_hidden_size,
        "decoder_sparse_step": spec.expert_every,
        "mlp_only_layers": list(range(spec.dense_layers)),
        "norm_topk_prob": spec.norm_topk_prob,
        "router_aux_loss_coef": spec.router_aux_loss_coef,
    }


def _deepseek_keys(spec: TransformerSpec) -> dict[str, Any]:
    return {
        "n_routed_experts": spec.num_experts,
        "num_experts_per_tok": spec.experts_per_token,
        "n_group": spec.expert_groups,
        "topk_group": spec.groups_per_token,
        "moe_intermediate_size": spec.expert_ffn_hidden_size,
        "n_shared_experts": spec.shared_expert_ffn_hidden_size // spec.expert_ffn_hidden_size,
        "first_k_dense_replace": spec.dense_layers,
        "moe_layer_freq": spec.expert_every,
        "norm_topk_prob": spec.norm_topk_prob,
        "routed_scaling_factor": spec.routed_scaling_factor,
        "scoring_func": spec.router_scoring,
        "q_lora_rank": spec.q_lora_rank or None,
        "kv_lora_rank": spec.kv_lora_rank,
        "qk_nope_head_dim": spec.head_dim - spec.rope_head_dim,
        "qk_rope_head_dim": spec.rope_head_dim,
        "v_head_dim": spec.value_width,
    }


FURTHER_KEYS: Mapping[str, Callable[[TransformerSpec], dict[str, Any]]] = {
    **dict.fromkeys(("gemma2", "gemma3_text"), _gemma_keys),
    "granite": _granite_keys,
    "smollm3": _smollm3_keys,
    "phi3": _phi3_keys,
    "glm4_moe": _glm4_moe_keys,
    "mixtral": _mixtral_keys,
    "qwen3_moe": _qwen3_moe_keys,
    "deepseek_v2": _deepseek_keys,
    "deepseek_v3": _deepseek_keys,
}
"""What a family's file has beside sizes, biases and rotary positions, by `model_type`."""
