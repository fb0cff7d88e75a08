"""Fields of a spec from the file of a dense model, one function a family or its kin."""

from __future__ import annotations

from typing import Any

from parsim.errors import ModelError
from parsim.model.config.families import BERT_CLASSES
from parsim.model.config.file import Config
from parsim.model.config.rotation import rotation


def gpt2(config: Config) -> dict[str, Any]:
    """GPT-2, and Megatron's GPTs."""
    config.require("add_cross_attention", False)
    return {
        "ffn_hidden_size": config.optional_integer("n_inner", None) or 4 * config.integer("n_embd"),
        "positions": config.integer("n_positions"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def opt(config: Config) -> dict[str, Any]:
    """OPT, but for its model of 350M, whose norms stand behind."""
    config.require("do_layer_norm_before", True)
    config.require("word_embed_proj_dim", config.integer("hidden_size"))
    config.require("enable_bias", True)
    return {
        "ffn_hidden_size": config.integer("ffn_dim"),
        "positions": config.integer("max_position_embeddings") + 2,  # the first two have no token
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def bloom(config: Config) -> dict[str, Any]:
    """BLOOM, which has no table of positions."""
    config.require("apply_residual_connection_post_layernorm", False)
    return {
        "ffn_hidden_size": 4 * config.integer("hidden_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def gpt_neox(config: Config) -> dict[str, Any]:
    """GPT-NeoX and Pythia."""
    return {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        **_attention_biases(config, True),
        **rotation(config),
    }


def bert(config: Config) -> dict[str, Any]:
    """BERT, and RoBERTa's kin, which are built as it is."""
    config.require("add_cross_attention", False)
    config.require("position_embedding_type", "absolute")
    known = [plain for name in config.architectures() if (plain := as_bert(name)) in BERT_CLASSES]
    pooler, head = BERT_CLASSES[known[0] if known else "BertModel"]
    return {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "positions": config.integer("max_position_embeddings"),
        "token_types": config.optional_integer("type_vocab_size", 2) or 0,
        "causal": config.flag("is_decoder", False),
        "pooler": pooler,
        "head": head,
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def as_bert(name: str) -> str:
    """What BERT calls a class of a family that is built as BERT is."""
    for family in ("XLMRoberta", "Roberta", "Camembert"):
        name = name.replace(f"{family}ForCausalLM", "BertLMHeadModel").replace(family, "Bert")
    return name


def llama(config: Config) -> dict[str, Any]:
    """Llama and its kin, which differ in biases and defaults only."""
    family, kind = config.family, config.model_type
    kv_heads = config.optional_integer("num_key_value_heads", family.kv_heads)
    fields: dict[str, Any] = {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", family.flags["tied_embeddings"]),
        **_attention_biases(config, bool(family.flags["qkv_bias"])),
        **rotation(config),
    }
    if kv_heads is not None:
        fields["num_key_value_heads"] = kv_heads
    if kind in ("mistral", "phi3", "starcoder2", "gemma2", "gemma3_text"):
        fields["window"] = config.optional_integer("sliding_window", family.window) or 0
    if kind in ("llama", "granite", "seed_oss", "smollm3", "nemotron"):
        fields["mlp_bias"] = config.flag("mlp_bias", False)
    return fields


def _attention_biases(config: Config, default: bool) -> dict[str, bool]:
    """Biases of the projections that a family's key switches together."""
    names = config.family.biases
    return dict.fromkeys(names, config.flag("attention_bias", default)) if names else {}


def gemma(config: Config) -> dict[str, Any]:
    """Gemma 2 and 3, most of whose layers see a window."""
    kinds = config.values.get("layer_types")
    if not isinstance(kinds, list) or "full_attention" not in kinds:
        every = config.amount("sliding_window_pattern", config.family.flags["full_every"])
        return {**llama(config), "full_every": every}
    every = kinds.index("full_attention") + 1
    if any((kind == "full_attention") != (n % every == 0) for n, kind in enumerate(kinds, 1)):
        raise ModelError(
            f"layer_types in a {config.model_type} config must have full_attention at every "
            f"{every}th layer, as at the first; anything else is not supported"
        )
    return {**llama(config), "full_every": every}


def seed_oss(config: Config) -> dict[str, Any]:
    """Seed-OSS, whose output projection has a switch of its own."""
    return {**llama(config), "projection_bias": config.flag("attention_out_bias", False)}


def starcoder2(config: Config) -> dict[str, Any]:
    """StarCoder 2, with one switch for all biases."""
    biases = ("qkv_bias", "projection_bias", "mlp_bias")
    stated = dict.fromkeys(biases, config.flag("use_bias", True))
    tied = config.flag("tie_word_embeddings", True)
    return {**llama(config), **stated, "tied_embeddings": tied}


def stablelm(config: Config) -> dict[str, Any]:
    """StableLM, with biases on queries, keys and values alone."""
    config.require("use_parallel_residual", False)
    config.require("qk_layernorm", False)
    return {**llama(config), "qkv_bias": config.flag("use_qkv_bias", False)}
