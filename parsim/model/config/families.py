"""Families of models as Hugging Face has them: what all members of one share.

Defaults are those of the family's transformers configuration class
(transformers/models/<model_type>/configuration_<model_type>.py), `unlike` is from its modeling
file beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from parsim.model.config.family import Family
from parsim.model.spec import Head

_LLAMA: Mapping[str, Any] = {
    "rope": True,
    "rms_norm": True,
    "gated_mlp": True,
    "qkv_bias": False,
    "projection_bias": False,
    "mlp_bias": False,
    "tied_embeddings": False,
}
_WITHOUT_NORM_BIASES: Mapping[str, Any] = {**_LLAMA, "rms_norm": False, "gated_mlp": False}

_BIASED_ROUTER: Mapping[str, Any] = {**_LLAMA, "router_scoring": "sigmoid", "router_bias": True}
_DEEPSEEK_V3 = Family(flags=_BIASED_ROUTER, latent=True)
_BERT_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
_BERT_FLAGS: Mapping[str, Any] = {
    "norm_epsilon": 1e-12,
    "token_types": 2,
    "post_norm": True,
    "causal": False,
    "pooler": True,
    "head": "none",
}
_BERT = Family(flags=_BERT_FLAGS, epsilon=("layer_norm_eps", 1e-12), dropout=_BERT_DROPOUT)
_ROBERTA = replace(  # two rows of positions are for padding and the row before it
    _BERT, flags={**_BERT_FLAGS, "first_position": 2}, spare_positions=2
)

_ATTENTION = ("qkv_bias", "projection_bias")
_Switches: TypeAlias = dict[str, tuple[str, ...]]
_ATTENTION_BIAS: _Switches = {"attention_bias": _ATTENTION}
_QKV_BIAS: _Switches = {"attention_bias": ("qkv_bias",)}
_OUT_BIAS: _Switches = {"attention_out_bias": ("projection_bias",)}
_MLP_BIAS: _Switches = {"mlp_bias": ("mlp_bias",)}
_WINDOW = "sliding_window"
_GEMMA: Mapping[str, Any] = {
    **_LLAMA,
    "tied_embeddings": True,
    "offset_norms": True,
    "activation": "gelu_tanh",
}
_GEMMA2: Mapping[str, Any] = {**_GEMMA, "norms_after": True, "full_every": 2}

FAMILIES: Mapping[str, Family] = {
    "bert": _BERT,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA),
    "gpt2": Family(
        sizes=("n_layer", "n_embd", "n_head"),
        activation="activation_function",
        length="n_positions",
        epsilon=("layer_norm_epsilon", 1e-5),
        dropout={"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    ),
    "opt": Family(
        flags={"activation": "relu", "first_position": 2},
        dropout={"dropout": 0.1, "attention_dropout": 0.0},
        epsilon=("layer_norm_eps", 1e-5),
        activation="activation_function",
    ),
    "bloom": Family(
        sizes=("n_layer", "hidden_size", "n_head"),
        length="seq_length",
        epsilon=("layer_norm_epsilon", 1e-5),
        dropout={"hidden_dropout": 0.0, "attention_dropout": 0.0},
        flags={"positions": 0, "alibi": True, "embedding_norm": True},
        activation="",
    ),
    "gpt_neox": Family(
        flags={
            "rope": True,
            "tied_embeddings": False,
            "activation": "gelu",
            "parallel_block": "own_norms",
        },
        epsilon=("layer_norm_eps", 1e-5),
        dropout={"hidden_dropout": 0.0, "attention_dropout": 0.0},
        switches=_ATTENTION_BIAS,
        rotary_share=0.25,
    ),
    "llama": Family(flags=_LLAMA, switches=_ATTENTION_BIAS | _MLP_BIAS),
    "mistral": Family(flags=_LLAMA, kv_heads=8, window=(_WINDOW, 4096)),
    "phi3": Family(
        flags=_LLAMA,
        epsilon=("rms_norm_eps", 1e-5),
        window=(_WINDOW, None),
        dropout={"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attention_dropout": 0.0},
    ),
    "gemma": Family(
        flags=_GEMMA,
        kv_heads=16,
        head_dim=256,
        switches=_ATTENTION_BIAS,
        activation="hidden_activation",
        scaled_embeddings=True,
    ),
    "gemma2": Family(
        flags={**_GEMMA2, "attention_cap": 50.0, "logit_cap": 30.0},
        kv_heads=4,
        head_dim=256,
        switches=_ATTENTION_BIAS,
        window=(_WINDOW, 4096),
        activation="hidden_activation",
        scaled_embeddings=True,
    ),
    "gemma3_text": Family(
        flags={**_GEMMA2, "qk_norm": True, "full_every": 6, "window_rope_theta": 1e4},
        kv_heads=4,
        head_dim=256,
        theta=1e6,
        switches=_ATTENTION_BIAS,
        window=(_WINDOW, 4096),
        left_out={
            "vocab_size": 262_208,
            "num_attention_heads": 8,
            "max_position_embeddings": 131_072,
        },
        activation="hidden_activation",
        scaled_embeddings=True,
    ),
    "glm4": Family(
        flags={**_LLAMA, "qkv_bias": True, "norms_after": True, "rope_interleaved": True},
        kv_heads=2,
        head_dim=128,
        epsilon=("rms_norm_eps", 1.5625e-07),
        switches=_QKV_BIAS,
        rotary_share=0.5,
    ),
    "granite": Family(flags=_LLAMA, switches=_ATTENTION_BIAS | _MLP_BIAS),
    "seed_oss": Family(
        flags={**_LLAMA, "qkv_bias": True},
        kv_heads=8,
        head_dim=128,
        dropout={"attention_dropout": 0.1, "residual_dropout": 0.1},
        switches=_QKV_BIAS | _OUT_BIAS | _MLP_BIAS,
    ),
    "smollm3": Family(
        flags={**_LLAMA, "tied_embeddings": True, "unrotated_every": 4},
        kv_heads=4,
        theta=2e6,
        switches=_ATTENTION_BIAS | _MLP_BIAS,
    ),
    "starcoder2": Family(
        flags={"rope": True, "tied_embeddings": True, "qkv_bias": True},
        kv_heads=2,
        epsilon=("norm_epsilon", 1e-5),
        switches={"use_bias": (*_ATTENTION, "mlp_bias")},
        window=(_WINDOW, None),
        dropout={"attention_dropout": 0.0, "residual_dropout": 0.0, "embedding_dropout": 0.0},
    ),
    "stablelm": Family(
        flags={**_LLAMA, "rms_norm": False},
        kv_heads=32,
        epsilon=("layer_norm_eps", 1e-5),
        switches={"use_qkv_bias": ("qkv_bias",)},
        dropout={"hidden_dropout": 0.0, "attention_dropout": 0.0},
        rotary_share=0.25,
    ),
    "nemotron": Family(
        flags={**_WITHOUT_NORM_BIASES, "activation": "relu_squared", "offset_norms": True},
        epsilon=("norm_eps", 1e-5),
        switches=_ATTENTION_BIAS | _MLP_BIAS,
        rotary_share=0.5,
    ),
    "qwen2": Family(flags={**_LLAMA, "qkv_bias": True}, kv_heads=32),
    "qwen3": Family(
        flags={**_LLAMA, "qk_norm": True}, kv_heads=32, head_dim=128, switches=_ATTENTION_BIAS
    ),
    "mixtral": Family(flags=_LLAMA, kv_heads=8, epsilon=("rms_norm_eps", 1e-5), theta=1e6),
    "qwen3_moe": Family(flags={**_LLAMA, "qk_norm": True}, kv_heads=4),
    "gpt_oss": Family(
        flags={
            **_LLAMA,
            "qkv_bias": True,
            "projection_bias": True,
            "mlp_bias": True,
            "rope_theta": 150_000.0,
            "rope_scaling": "yarn",
            "rope_factor": 32.0,
            "rope_original_positions": 4096,
            "rope_high_freq_factor": 32.0,
            "full_every": 2,
            "router_aux_loss_coef": 0.9,
        },
        kv_heads=8,
        epsilon=("rms_norm_eps", 1e-5),
        theta=150_000.0,
        unlike="sinks of attention's scores and the clamps of experts' gates are left out",
    ),
    "glm4_moe": Family(
        flags=_BIASED_ROUTER,
        kv_heads=8,
        epsilon=("rms_norm_eps", 1e-5),
        switches=_QKV_BIAS,
        rotary_share=0.5,
    ),
    "llama4_text": Family(
        flags={**_LLAMA, "router_scoring": "sigmoid", "norm_topk_prob": False},
        kv_heads=8,
        head_dim=128,
        epsilon=("rms_norm_eps", 1e-5),
        theta=500_000.0,
        switches=_ATTENTION_BIAS,
        unlike="three of four layers see their chunk of attention_chunk_size tokens alone, which "
        "is costed as the whole sequence; norms without weights of queries and keys, and the loss "
        "that balances experts, are left out",
    ),
    "deepseek_v2": Family(flags={**_LLAMA, "norm_topk_prob": False}, latent=True),
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
}
"""Families whose `config.json` can be read, by `model_type`."""

FAMILY_FLAGS: Mapping[str, Mapping[str, Any]] = {
    **{name: family.flags for name, family in FAMILIES.items()},
    "nemotron_h": {**_LLAMA, "rope": False, "gated_mlp": False},
}
"""Fields of TransformerSpec that every member of a family shares, where not the spec's default."""

BERT_CLASSES: Mapping[str, tuple[bool, Head]] = {
    "BertModel": (True, "none"),
    "BertForPreTraining": (True, "mlm"),
    "BertForMaskedLM": (False, "mlm"),
    "BertLMHeadModel": (False, "mlm"),
}
"""BERT class -> (pooler, head); the other classes put a small classifier on the encoder."""


def unlike_note(family: str) -> str:
    """What models of a family compute otherwise than their specs say; empty where nothing."""
    known = FAMILIES.get(family)
    return f"{family}: {known.unlike}" if known and known.unlike else ""
