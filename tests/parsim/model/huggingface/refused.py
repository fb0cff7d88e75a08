"""Configs that are refused, and the words."""

from __future__ import annotations

SIZES: dict[str, object] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}

LLAMA = SIZES | {"model_type": "llama"}
