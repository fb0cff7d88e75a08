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
        "ffn_hidden_size": reader.number("--ffn-hidden-size", _width(hidden, gated=llama)),
        **_vocabulary(reader, 128256 if llama else 50257),
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


def _width(hidden: int, *, gated: bool) -> int:
    """The feed-forward width that Megatron takes where none is given (`validate_args`)."""
    return hidden * 8 // 3 // 64 * 64 if gated else 4 * hidden


def _vocabulary(reader: Reader, usual: int) -> dict[str, Any]:
    """Tokens, and the rows that are stored: a multiple of so many for each tensor-parallel rank."""
    size = reader.count("--vocab-size", usual)
    if not reader.has("--vocab-size"):
        reader.notes.append(
            f"vocab_size = {size} is assumed, which is the tokenizer's: no --vocab-size tells it"
        )
    unit = reader.count("--make-vocab-size-divisible-by", 128)
    unit *= reader.count("--tensor-model-parallel-size")
    rows = reader.number("--padded-vocab-size", -(-size // unit) * unit)
    return {"vocab_size": size, **({"padded_vocab_size": rows} if rows != size else {})}
