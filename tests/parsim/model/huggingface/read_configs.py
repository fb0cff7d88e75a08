"""Small configs of families, and the specs that are read of them."""

from __future__ import annotations

from pathlib import Path

from parsim.model.huggingface import spec_from_config
from parsim.model.transformer import TransformerSpec

CONFIGS = Path(__file__).parent.parent / "configs"

GPT2: dict[str, object] = {
    "model_type": "gpt2",
    "n_layer": 12,
    "n_embd": 768,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
}

LLAMA: dict[str, object] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 32,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 2048,
}

MISTRAL = LLAMA | {"model_type": "mistral", "max_position_embeddings": 32768}
QWEN2 = LLAMA | {"model_type": "qwen2"}
BERT = LLAMA | {"model_type": "bert", "max_position_embeddings": 512}


def spec(config: dict[str, object], **changes: object) -> TransformerSpec:
    return spec_from_config(config | changes, name="test")
