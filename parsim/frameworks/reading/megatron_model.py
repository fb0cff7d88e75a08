"""Sizes of the model that Megatron-LM's arguments describe."""

from __future__ import annotations

from typing import Any

from parsim.frameworks.reading.arguments import Reader


def model_of(reader: Reader) -> dict[str, Any]:
    """The model block of a scenario."""
    llama = reader.has("--swiglu")
    rope = reader.word("--position-embedding-type", "learned_absolute") == "rope"
    heads = reader.count("--num-attention-heads")
    hidden = reader.number("--hidden-size", 1)
    model: dict[str, Any] = {
        "family": "llama" if llama else "gpt2",
        "num_layers": reader.number("--num-layers", 1),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "head_dim": reader.number("--kv-channels", max(hidden // heads, 1)),
        "ffn_hidden_size": reader.number("--ffn-hidden-size", 4 * hidden),
        "vocab_size": reader.number("--vocab-size", 128256 if llama else 50257),
        "seq_len": reader.number("--seq-length", 1),
        "rope": rope or reader.has("--use-rotary-position-embeddings"),
        "rms_norm": reader.word("--normalization", "LayerNorm") == "RMSNorm",
        "tied_embeddings": not reader.has("--untie-embeddings-and-output-weights"),
    }
    if reader.has("--group-query-attention"):
        model["num_key_value_heads"] = reader.number("--num-query-groups", heads)
    if reader.has("--disable-bias-linear") and not llama:
        model |= dict.fromkeys(("qkv_bias", "projection_bias", "mlp_bias"), False)
    positions = reader.number("--max-position-embeddings", model["seq_len"])
    if not model["rope"]:
        model["positions"] = positions
    if reader.has("--num-experts"):
        model["num_experts"] = reader.number("--num-experts", 1)
        model["experts_per_token"] = reader.number("--moe-router-topk", 2)
        if reader.has("--moe-router-num-groups"):
            model["expert_groups"] = reader.number("--moe-router-num-groups", 1)
            model["groups_per_token"] = reader.number("--moe-router-group-topk", 1)
        width = model["ffn_hidden_size"]
        model["expert_ffn_hidden_size"] = reader.number("--moe-ffn-hidden-size", width)
        shared = reader.number("--moe-shared-expert-intermediate-size", 0)
        model |= {"shared_expert_ffn_hidden_size": shared} if shared else {}
    return model
