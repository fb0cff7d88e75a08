"""Sizes of the model that Megatron-LM's arguments describe (defaults of its `arguments.py`)."""

from __future__ import annotations

import re
from typing import Any

from parsim.errors import InputError, shown
from parsim.frameworks.reading.arguments import Reader
from parsim.frameworks.reading.megatron_experts import expert_sizes, numbers
from parsim.frameworks.reading.megatron_hybrid import hybrid_sizes, is_hybrid
from parsim.model.config.families import BERT_CLASSES
from parsim.units import whole_number

_OTHERS = (
    *("--moe-latent-size", "--experimental-attention-variant", "--linear-attention-freq"),
    *("--heterogeneous-layers-config-path", "--heterogeneous-layers-config-encoded-json"),
)
"""Flags of models whose sizes and kernels are others than any that parsim knows."""

_TOKENS = {
    "GPT2BPETokenizer": 50257,
    "Llama2Tokenizer": 32000,
    "BertWordPieceLowerCase": 30522,
    "BertWordPieceCase": 28996,
}
"""Tokens of the tokenizers that each have one vocabulary."""

_GPT, _LLAMA, _BERT = 50257, 128256, 30522
"""Tokens of GPT-2, Llama 3 and BERT, of which one is assumed where no tokenizer is told."""


def model_of(reader: Reader, program: str = "gpt") -> dict[str, Any]:
    """The model block of a scenario, of what a program trains (`program_of`)."""
    _refuse_others(reader)
    gated = reader.has("--swiglu") or reader.has("--quick-geglu")
    hidden = reader.number("--hidden-size", 1)
    model: dict[str, Any] = {
        "family": "llama" if gated else "gpt2",
        "num_layers": 0 if is_hybrid(reader) else reader.number("--num-layers", 1),
        "hidden_size": hidden,
        "ffn_hidden_size": reader.number("--ffn-hidden-size", _width(hidden, gated=gated)),
        **_vocabulary(
            reader, _tokens(reader, _BERT if program == "bert" else _LLAMA if gated else _GPT)
        ),
        "seq_len": reader.number("--seq-length", 1),
        "rms_norm": reader.word("--normalization", "LayerNorm") == "RMSNorm",
        "norm_epsilon": reader.real("--norm-epsilon", 1e-5),
        "tied_embeddings": not reader.has("--untie-embeddings-and-output-weights"),
        "predicted_tokens": reader.number("--mtp-num-layers", 0),
        **_attention(reader, hidden),
        **_windows(reader),
        **_biases(reader),
        **_dropout(reader),
        **_positions(reader),
        **({"activation": "relu_squared"} if reader.has("--squared-relu") else {}),
        **(_encoder() if program == "bert" else {}),
        **(hybrid_sizes(reader, hidden) if is_hybrid(reader) else {}),
    }
    return model | expert_sizes(reader, model["num_layers"], model["ffn_hidden_size"])


def program_of(script: str) -> str:
    """What the program that a script starts trains: gpt where it names none.

    Raises:
        InputError: a model of another kind.
    """
    programs = set(re.findall(r"\b(?:pretrain|train|finetune)_(\w+)\.py\b", script))
    others = sorted(programs - {"gpt", "mamba", "hybrid", "bert"})
    if others:
        raise InputError(f"{others[0]} is trained, of which only GPTs, BERTs and hybrids are read")
    return "bert" if "bert" in programs else "gpt"


def _encoder() -> dict[str, Any]:
    """What BERT has otherwise than a GPT."""
    pooler, head = BERT_CLASSES["BertForPreTraining"]
    return {"causal": False, "pooler": pooler, "head": head}


def _refuse_others(reader: Reader) -> None:
    """Stop at what makes layers that nothing here describes.

    Raises:
        InputError: which flag does.
    """
    for flag in _OTHERS:
        if reader.has(flag):
            raise InputError(f"{flag} makes layers that parsim does not know")


def _width(hidden: int, *, gated: bool) -> int:
    """The feed-forward width that Megatron takes where none is given (`validate_args`)."""
    return hidden * 8 // 3 // 64 * 64 if gated else 4 * hidden


def _tokens(reader: Reader, usual: int) -> int:
    """How many tokens a tokenizer has that is named, or whose file of merges is: GPT-2's."""
    pairs = "GPT2BPETokenizer" if reader.has("--merge-file") else ""
    return _TOKENS.get(reader.word("--tokenizer-type", pairs), usual)


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


def _attention(reader: Reader, hidden: int) -> dict[str, Any]:
    """Heads, and how keys and values are made."""
    heads = reader.count("--num-attention-heads")
    attention: dict[str, Any] = {"num_attention_heads": heads}
    if not _fused(reader):
        attention["fused_attention"] = False
    normed = reader.has("--qk-layernorm")
    if reader.has("--multi-latent-attention"):
        return attention | _latent(reader)
    attention["head_dim"] = reader.number("--kv-channels", max(hidden // heads, 1))
    if normed:
        attention["qk_norm"] = True
    if reader.has("--group-query-attention"):
        attention["num_key_value_heads"] = reader.number("--num-query-groups", heads)
    return attention


def _fused(reader: Reader) -> bool:
    """Whether attention is one kernel, which keeps no scores.

    Megatron's own modules (`--transformer-impl local`) multiply, mask and take the softmax apart
    (core/transformer/dot_product_attention.py), Transformer Engine's where they are told to.
    """
    flash = reader.has("--use-flash-attn")
    alone = reader.word("--transformer-impl", "transformer_engine") == "local" and not flash
    return not alone and reader.word("--attention-backend", "auto") not in ("unfused", "local")


def _windows(reader: Reader) -> dict[str, int]:
    """How many tokens some layers see alone: as many as stand before a token, and its own."""
    flag, layers = "--window-size", reader.number("--num-layers", 1)
    if not reader.has(flag):
        return {}
    before, _, behind = reader.word(flag, "").strip("()").partition(",")
    size = whole_number(before.strip())
    if size is None or behind.strip() not in ("", "0"):
        raise InputError(f"{flag} {shown(reader.word(flag, ''))} must be such as 127,0")
    return {"window": size + 1, **_full_layers(reader, layers)}


def _full_layers(reader: Reader, layers: int) -> dict[str, int]:
    """Each so-manieth layer sees the whole sequence; nothing where all have the window."""
    flag = "--window-attn-skip-freq"
    text = reader.word(flag, "") if reader.has(flag) else ""
    skipped = whole_number(text) if text else 0
    if skipped is None:
        near = numbers(flag, text)
        if all(near):
            return {}
        skipped = next((n for n in range(1, layers + 1) if near == _all_but(n, layers)), 0)
        if not skipped:
            skipped = 2
            reader.notes.append(f"{flag}: every second layer is taken to have no window")
    return {"full_every": skipped} if skipped else {}


def _all_but(every: int, layers: int) -> list[int]:
    """Which layers have a window where each so-manieth has none."""
    return [int(layer % every != 0) for layer in range(1, layers + 1)]


def _latent(reader: Reader) -> dict[str, Any]:
    """Latent attention, whose heads have a rotary part and another."""
    rotary = reader.count("--qk-pos-emb-head-dim", 64)
    return {
        "head_dim": reader.count("--qk-head-dim", 128) + rotary,
        "rope_head_dim": rotary,
        "value_head_dim": reader.count("--v-head-dim", 128),
        "q_lora_rank": reader.number("--q-lora-rank", 0),
        "kv_lora_rank": reader.count("--kv-lora-rank", 32),
    }


def _biases(reader: Reader) -> dict[str, bool]:
    """Which products add a bias: all, none, or those of queries, keys and values alone."""
    everywhere = not reader.has("--disable-bias-linear")
    attention = reader.has("--add-qkv-bias") or everywhere
    return {"qkv_bias": attention, "projection_bias": everywhere, "mlp_bias": everywhere}


def _dropout(reader: Reader) -> dict[str, bool]:
    """Whether there is any: Megatron has both kinds unless they are told to be 0."""
    rates = [reader.real(f"--{name}-dropout", 0.1) for name in ("attention", "hidden")]
    return {"dropout": any(rates)}


def _positions(reader: Reader) -> dict[str, Any]:
    """Angles of rotary embeddings, or the table of learned positions."""
    kind = reader.word("--position-embedding-type", "learned_absolute")
    longest = reader.number("--max-position-embeddings", reader.number("--seq-length", 1))
    base, without = reader.real("--rotary-base", 10_000.0), reader.has("--no-position-embedding")
    rotary = kind in ("rope", "yarn") or reader.has("--use-rotary-position-embeddings")
    if rotary or reader.has("--multi-latent-attention"):
        return {"rope": True, "rope_theta": base, "positions": 0}
    learned = kind == "learned_absolute" and not without
    return {"rope": False, "positions": longest if learned else 0}
