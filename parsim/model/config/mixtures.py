"""Fields of a spec from the file of a mixture of experts, one function a family or its kin."""

from __future__ import annotations

from typing import Any

from parsim.errors import ModelError, shown
from parsim.model.config.dense import llama
from parsim.model.config.file import Config
from parsim.model.config.rotation import rotation


def llama4(config: Config) -> dict[str, Any]:
    """Llama 4's text part: each token goes to one expert and to the shared one."""
    width = config.integer("intermediate_size")
    return {
        **llama(config),
        "ffn_hidden_size": config.optional_integer("intermediate_size_mlp", 16_384) or width,
        "num_experts": config.integer("num_local_experts"),
        "experts_per_token": config.amount("num_experts_per_tok", 1),
        "expert_ffn_hidden_size": width,
        "shared_expert_ffn_hidden_size": width,
        "expert_every": config.amount("interleave_moe_layer_step", 1),
    }


def mixtral(config: Config) -> dict[str, Any]:
    """Mixtral, all of whose layers have experts."""
    width = config.integer("intermediate_size")
    return {
        **llama(config),
        "num_experts": config.integer("num_local_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": width,
        "router_aux_loss_coef": config.number("router_aux_loss_coef", 0.001),
    }


def gpt_oss(config: Config) -> dict[str, Any]:
    """GPT-OSS, every second layer of which sees a window."""
    return {
        **mixtral(config),
        "router_aux_loss_coef": config.number("router_aux_loss_coef", 0.9),
        "window": config.amount("sliding_window", 128),
    }


def qwen3_moe(config: Config) -> dict[str, Any]:
    """Qwen3's mixtures, with many small experts."""
    only = config.values.get("mlp_only_layers") or []
    if not isinstance(only, list) or only != list(range(len(only))):
        raise ModelError(
            f"mlp_only_layers={shown(only)} in a qwen3_moe config must be the first layers; "
            f"anything else is not supported"
        )
    return {
        **llama(config),
        # transformers 5 writes Mixtral's key
        "num_experts": config.integer(
            "num_local_experts" if "num_experts" not in config.values else "num_experts"
        ),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": config.integer("moe_intermediate_size"),
        "dense_layers": len(only),
        "expert_every": config.amount("decoder_sparse_step", 1),
        "norm_topk_prob": config.flag("norm_topk_prob", False),
        "router_aux_loss_coef": config.number("router_aux_loss_coef", 0.001),
    }


def glm4_moe(config: Config) -> dict[str, Any]:
    """GLM-4.5: grouped queries, and DeepSeek V3's experts."""
    experts = _deepseek_experts(config, "sigmoid", scale=1.0)
    return {**llama(config), **experts, "qk_norm": config.flag("use_qk_norm", False)}


def deepseek(config: Config) -> dict[str, Any]:
    """DeepSeek V2 and V3, and what is made after them: latent attention and shared experts."""
    second = config.model_type == "deepseek_v2"
    usual = "softmax" if second else "sigmoid"
    scoring = config.word("scoring_func", ("softmax", "sigmoid"), usual)
    experts = _deepseek_experts(config, scoring, scale=1.0 if second else 2.5)
    return {
        **rotation(config),
        **experts,
        "norm_topk_prob": not second and experts["norm_topk_prob"],
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "expert_every": config.amount("moe_layer_freq", 1),
        "q_lora_rank": config.amount("q_lora_rank", 0),
        "kv_lora_rank": config.integer("kv_lora_rank"),
        "rope_head_dim": config.integer("qk_rope_head_dim"),
        "value_head_dim": config.integer("v_head_dim"),
    }


def _deepseek_experts(config: Config, scoring: str, *, scale: float) -> dict[str, Any]:
    """Many small experts and some that every token meets, behind a few plain layers."""
    width = config.integer("moe_intermediate_size")
    return {
        "norm_topk_prob": config.flag("norm_topk_prob", True),
        "router_scoring": scoring,
        "router_bias": scoring == "sigmoid",
        "routed_scaling_factor": config.number("routed_scaling_factor", scale),
        "num_experts": config.integer("n_routed_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_groups": config.amount("n_group", 1) or 1,
        "groups_per_token": config.amount("topk_group", 1) or 1,
        "expert_ffn_hidden_size": width,
        "shared_expert_ffn_hidden_size": width * config.amount("n_shared_experts", 0),
        "dense_layers": config.amount("first_k_dense_replace", 0),
    }
