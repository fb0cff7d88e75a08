"""The Hugging Face `config.json` of a spec: what `parsim.model.huggingface` reads, written.

A spec has no family; the one whose members have all its switches is taken. Mistral without a window
is Llama. Padding of the vocabulary, the kernel of attention and the name are not part of a config.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parsim.model.config.families import BERT_CLASSES
from parsim.model.config.family_of_spec import family_of
from parsim.model.config.rotation import scaling_block
from parsim.model.spec import TransformerSpec

DROPOUT = 0.1
"""Probability wherever a spec has dropout: that of the GPT-2 and BERT configurations."""


def config_from_spec(spec: TransformerSpec) -> dict[str, Any]:
    """The content of a `config.json`.

    Raises:
        ModelError: no family has all switches of the model.
    """
    kind = family_of(spec)
    body = {"gpt2": _gpt2_keys, "bert": _bert_keys}.get(kind, _llama_keys)
    return {
        "model_type": kind,
        **body(spec),
        **(_EXPERT_KEYS[kind](spec) if kind in _EXPERT_KEYS else {}),
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": spec.tied_embeddings,
    }


def _gpt2_keys(spec: TransformerSpec) -> dict[str, Any]:
    rates = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "n_layer": spec.num_layers,
        "n_embd": spec.hidden_size,
        "n_head": spec.num_attention_heads,
        "n_inner": spec.ffn_hidden_size,
        "n_positions": spec.positions,
        "layer_norm_epsilon": spec.norm_epsilon,
        **dict.fromkeys(rates, _rate(spec)),
    }


def _bert_keys(spec: TransformerSpec) -> dict[str, Any]:
    kinds = {pair: name for name, pair in reversed(list(BERT_CLASSES.items()))}
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return {
        "architectures": [kinds[spec.pooler, spec.head]],
        "hidden_act": "gelu",
        **_usual_sizes(spec),
        "max_position_embeddings": spec.positions,
        "type_vocab_size": spec.token_types,
        "is_decoder": spec.causal,
        "layer_norm_eps": spec.norm_epsilon,
        **dict.fromkeys(rates, _rate(spec)),
    }


def _llama_keys(spec: TransformerSpec) -> dict[str, Any]:
    kind = family_of(spec)
    biases = {"attention_bias": spec.qkv_bias, "mlp_bias": spec.mlp_bias}
    return {
        "architectures": [_CLASSES[kind]],
        "hidden_act": "silu",
        **_usual_sizes(spec),
        "num_key_value_heads": spec.num_key_value_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.seq_len,
        "rms_norm_eps": spec.norm_epsilon,
        "rope_theta": spec.rope_theta,
        "rope_scaling": scaling_block(spec),
        "attention_dropout": _rate(spec),
        "sliding_window": spec.window or None,
        **(biases if kind == "llama" else {}),
    }


_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}


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


_EXPERT_KEYS: Mapping[str, Callable[[TransformerSpec], dict[str, Any]]] = {
    "mixtral": _mixtral_keys,
    "qwen3_moe": _qwen3_moe_keys,
    "deepseek_v2": _deepseek_keys,
    "deepseek_v3": _deepseek_keys,
}


def _usual_sizes(spec: TransformerSpec) -> dict[str, Any]:
    return {
        "num_hidden_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "num_attention_heads": spec.num_attention_heads,
        "intermediate_size": spec.ffn_hidden_size,
    }


def _rate(spec: TransformerSpec) -> float:
    return DROPOUT if spec.dropout else 0.0
