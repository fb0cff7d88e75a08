"""Fields of a spec from the file of a dense model, one function a family or its kin."""

from __future__ import annotations

import math
from typing import Any

from parsim.errors import ModelError, shown
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
    config.require("_remove_final_layer_norm", False)
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
    beside = config.flag("use_parallel_residual", True)
    return {
        "parallel_block": "own_norms" if beside else "none",
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        **_biases(config),
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
    family = config.family
    kv_heads = config.optional_integer("num_key_value_heads", family.kv_heads)
    fields: dict[str, Any] = {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", family.flags["tied_embeddings"]),
        **_biases(config),
        **rotation(config),
    }
    if kv_heads is not None:
        fields["num_key_value_heads"] = kv_heads
    if family.window is not None:
        fields["window"] = config.optional_integer(*family.window) or 0
    return fields


def _biases(config: Config) -> dict[str, bool]:
    """Biases of products, as the family's keys switch them."""
    flags = config.family.flags
    return {
        name: config.flag(key, bool(flags.get(name, True)))
        for key, names in config.family.switches.items()
        for name in names
    }


def gemma(config: Config) -> dict[str, Any]:
    """Gemma, whose embeddings are multiplied by the root of the model's width."""
    return {**llama(config), "embedding_scale": math.sqrt(config.integer("hidden_size"))}


def windowed_gemma(config: Config) -> dict[str, Any]:
    """Gemma 2 and 3, most of whose layers see a window."""
    flags = config.family.flags
    fields = {
        **gemma(config),
        "full_every": _every_full(config),
        "attention_scale": config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        "attention_cap": config.cap("attn_logit_softcapping", flags.get("attention_cap", 0.0)),
        "logit_cap": config.cap("final_logit_softcapping", flags.get("logit_cap", 0.0)),
    }
    if "window_rope_theta" in flags:
        theta = config.number("rope_local_base_freq", flags["window_rope_theta"])
        newer = config.within("rope_parameters")
        near = newer and newer.within("sliding_attention")
        fields["window_rope_theta"] = near.number("rope_theta", theta) if near else theta
    return fields


def _every_full(config: Config) -> int:
    """Every which layer sees all tokens."""
    kinds = config.values.get("layer_types")
    if not isinstance(kinds, list) or "full_attention" not in kinds:
        return config.amount("sliding_window_pattern", config.family.flags["full_every"])
    every = kinds.index("full_attention") + 1
    if any((kind == "full_attention") != (n % every == 0) for n, kind in enumerate(kinds, 1)):
        raise ModelError(
            f"layer_types in a {config.model_type} config must have full_attention at every "
            f"{every}th layer, as at the first; anything else is not supported"
        )
    return every


def granite(config: Config) -> dict[str, Any]:
    """Granite: a Llama with four constants."""
    return {
        **llama(config),
        "embedding_scale": config.number("embedding_multiplier", 1.0),
        "residual_scale": config.number("residual_multiplier", 1.0),
        "attention_scale": config.number("attention_multiplier", 1.0),
        "logit_scale": 1.0 / config.number("logits_scaling", 1.0),
    }


def smollm3(config: Config) -> dict[str, Any]:
    """SmolLM3, some of whose layers do not turn their heads."""
    config.require("use_sliding_window", False)
    every = config.amount("no_rope_layer_interval", config.family.flags["unrotated_every"])
    turning = config.values.get("no_rope_layers")
    if isinstance(turning, list):
        every = turning.index(0) + 1 if 0 in turning else 0
        expected = [int(every == 0 or n % every > 0) for n in range(1, len(turning) + 1)]
        if turning != expected:
            raise ModelError(
                f"no_rope_layers={shown(turning)} in a smollm3 config must have 0 at every "
                f"{every}th layer; anything else is not supported"
            )
    return {**llama(config), "unrotated_every": every}


def stablelm(config: Config) -> dict[str, Any]:
    """StableLM, but for the members whose parts are beside one another."""
    config.require("use_parallel_residual", False)
    config.require("qk_layernorm", False)
    return llama(config)
