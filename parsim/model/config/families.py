"""Families of models as Hugging Face has them, and what all members of one share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.model.spec import Head

_LLAMA_FLAGS = {
    "rope": True,
    "rms_norm": True,
    "gated_mlp": True,
    "qkv_bias": False,
    "projection_bias": False,
    "mlp_bias": False,
    "tied_embeddings": False,
}

_DEEPSEEK_V3_FLAGS: Mapping[str, Any] = {
    **_LLAMA_FLAGS,
    "router_scoring": "sigmoid",
    "router_bias": True,
}
FAMILY_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "bert": {
        "norm_epsilon": 1e-12,
        "token_types": 2,
        "post_norm": True,
        "causal": False,
        "pooler": True,
        "head": "none",
    },
    "gpt2": {},
    **dict.fromkeys(("llama", "mistral", "mixtral"), _LLAMA_FLAGS),
    "qwen2": {**_LLAMA_FLAGS, "qkv_bias": True},
    "qwen3": {**_LLAMA_FLAGS, "qk_norm": True},
    "qwen3_moe": {**_LLAMA_FLAGS, "qk_norm": True},
    "gpt_oss": {
        **_LLAMA_FLAGS,
        "qkv_bias": True,
        "projection_bias": True,
        "mlp_bias": True,
        "rope_theta": 150_000.0,
        "rope_scaling": "yarn",
        "rope_factor": 32.0,
        "rope_original_positions": 4096,
        "rope_high_freq_factor": 32.0,
        "window_every": 2,
        "router_aux_loss_coef": 0.9,
    },
    "deepseek_v2": {**_LLAMA_FLAGS, "norm_topk_prob": False},
    "deepseek_v3": _DEEPSEEK_V3_FLAGS,
    "kimi_k2": _DEEPSEEK_V3_FLAGS,
    "nemotron_h": {**_LLAMA_FLAGS, "rope": False, "gated_mlp": False},
}
"""Fields of TransformerSpec that every member of a family shares, where not the spec's default."""

BERT_CLASSES: Mapping[str, tuple[bool, Head]] = {
    "BertModel": (True, "none"),
    "BertForPreTraining": (True, "mlm"),
    "BertForMaskedLM": (False, "mlm"),
    "BertLMHeadModel": (False, "mlm"),
}
"""BERT class -> (pooler, head); the other classes put a small classifier on the encoder."""
