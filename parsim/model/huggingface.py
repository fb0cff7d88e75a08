"""Specs from the content of a Hugging Face `config.json` (transformers is not needed).

A size that decides the parameter count must be in the file; what may be left out falls back on the
family's default (`config/file.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parsim.errors import ModelError, shown
from parsim.model.config.families import BERT_CLASSES, FAMILY_FLAGS
from parsim.model.config.file import DEFAULT_KV_HEADS, Config
from parsim.model.config.rotation import rotation
from parsim.model.transformer import TransformerSpec, check_spec

# keys of depth, width and query heads
_USUAL_SIZE_KEYS = ("num_hidden_layers", "hidden_size", "num_attention_heads")
_SIZE_KEYS = {"gpt2": ("n_layer", "n_embd", "n_head")}


def spec_from_config(
    config: Mapping[str, Any], *, name: str, seq_len: int | None = None
) -> TransformerSpec:
    """Turn the content of a `config.json` into a spec called `name`.

    `seq_len` defaults to the longest sequence the model was made for (`n_positions`,
    `max_position_embeddings`). What the spec cannot express is told by `notes_from_config`.

    Raises:
        ModelError: the model type is not supported, a key is missing or has a wrong value.
    """
    fields = Config.open(config)
    flags = FAMILY_FLAGS[fields.model_type]
    known = {**flags, **_sizes(fields), **_READERS[fields.model_type](fields)}
    length = fields.longest_sequence() if seq_len is None else seq_len
    spec = TransformerSpec(name=name, seq_len=length, **known)
    check_spec(spec)
    return spec


def _sizes(config: Config) -> dict[str, Any]:
    """Fields that every family has, under its own key names."""
    layers, width, heads = _SIZE_KEYS.get(config.model_type, _USUAL_SIZE_KEYS)
    return {
        "num_layers": config.integer(layers),
        "hidden_size": config.integer(width),
        "num_attention_heads": config.integer(heads),
        "num_key_value_heads": config.integer(heads),
        "head_dim": config.head_dim(width, heads),
        "vocab_size": config.integer("vocab_size"),
        "dropout": any(config.dropout().values()),
        "norm_epsilon": config.norm_epsilon(),
    }


def _gpt2(config: Config) -> dict[str, Any]:
    config.require("add_cross_attention", False)
    return {
        "ffn_hidden_size": config.optional_integer("n_inner", None) or 4 * config.integer("n_embd"),
        "positions": config.integer("n_positions"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def _bert(config: Config) -> dict[str, Any]:
    config.require("add_cross_attention", False)
    config.require("position_embedding_type", "absolute")
    known = [name for name in config.architectures() if name in BERT_CLASSES]
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


def _llama(config: Config) -> dict[str, Any]:
    """Llama and its kin, which differ in biases and defaults only."""
    default_kv_heads = DEFAULT_KV_HEADS[config.model_type]
    kv_heads = config.optional_integer("num_key_value_heads", default_kv_heads)
    fields: dict[str, Any] = {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        **rotation(config),
    }
    if kv_heads is not None:
        fields["num_key_value_heads"] = kv_heads
    if config.model_type == "mistral":
        fields["window"] = config.optional_integer("sliding_window", 4096) or 0
    if config.model_type in ("llama", "qwen3"):
        # attention_bias is on all four projections, mlp_bias on all three
        fields["qkv_bias"] = fields["projection_bias"] = config.flag("attention_bias", False)
    if config.model_type == "llama":
        fields["mlp_bias"] = config.flag("mlp_bias", False)
    return fields


def _mixtral(config: Config) -> dict[str, Any]:
    width = config.integer("intermediate_size")
    return {
        **_llama(config),
        "num_experts": config.integer("num_local_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": width,
        "router_aux_loss_coef": config.number("router_aux_loss_coef", 0.001),
    }


def _gpt_oss(config: Config) -> dict[str, Any]:
    return {
        **_mixtral(config),
        "router_aux_loss_coef": config.number("router_aux_loss_coef", 0.9),
        "window": config.amount("sliding_window", 128),
    }


def _qwen3_moe(config: Config) -> dict[str, Any]:
    only = config.values.get("mlp_only_layers") or []
    if not isinstance(only, list) or only != list(range(len(only))):
        raise ModelError(
            f"mlp_only_layers={shown(only)} in a qwen3_moe config must be the first layers; "
            f"anything else is not supported"
        )
    return {
        **_llama(config),
        # transformers 5 writes Mixtral's key
        "num_experts": config.integer(
            "num_local_experts" if "num_experts" not in config.values else "num_experts"
        ),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": config.integer("moe_intermediate_size"),
        "dense_layers": len(only),
        "expert_every": config.amount("decoder_sparse_step", 1),
        "norm_topk_prob": config.flag("norm_topk_prob", False),
        "router_aux_loss_coef": config.number("router_aux_loss_coef", 0.001),
    }


def _deepseek(config: Config) -> dict[str, Any]:
    """DeepSeek V2 and V3, and what is made after them: latent attention and shared experts."""
    width = config.integer("moe_intermediate_size")
    second = config.model_type == "deepseek_v2"
    usual = "softmax" if second else "sigmoid"
    scoring = config.word("scoring_func", ("softmax", "sigmoid"), usual)
    return {
        **rotation(config),
        "norm_topk_prob": not second and config.flag("norm_topk_prob", True),
        "router_scoring": scoring,
        "router_bias": scoring == "sigmoid",
        "routed_scaling_factor": config.number("routed_scaling_factor", 1.0 if second else 2.5),
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "num_experts": config.integer("n_routed_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_groups": config.amount("n_group", 1) or 1,
        "groups_per_token": config.amount("topk_group", 1) or 1,
        "expert_ffn_hidden_size": width,
        "shared_expert_ffn_hidden_size": width * config.amount("n_shared_experts", 0),
        "dense_layers": config.amount("first_k_dense_replace", 0),
        "expert_every": config.amount("moe_layer_freq", 1),
        "q_lora_rank": config.amount("q_lora_rank", 0),
        "kv_lora_rank": config.integer("kv_lora_rank"),
        "rope_head_dim": config.integer("qk_rope_head_dim"),
        "value_head_dim": config.integer("v_head_dim"),
    }


_READERS: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _llama),
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _deepseek),
}


def notes_from_config(config: Mapping[str, Any], *, seq_len: int | None = None) -> tuple[str, ...]:
    """Say in one line each what the config asks for and the spec leaves out or rounds."""
    fields = Config.open(config)
    notes = (_window_note(fields, seq_len), _dropout_note(fields), _head_note(fields))
    return tuple(note for note in notes if note)


def _window_note(config: Config, seq_len: int | None) -> str:
    """Windows of some layers only are accepted and costed as attention over the whole sequence."""
    switched = ("qwen2", "qwen3", "qwen3_moe")
    if config.model_type in switched and not config.flag("use_sliding_window", False):
        return ""
    if config.model_type not in (*switched, "mixtral"):
        return ""
    absent = 4096 if config.model_type in ("qwen2", "qwen3") else None
    window = config.optional_integer("sliding_window", absent)
    length = config.longest_sequence() if seq_len is None else seq_len
    if window is None or window >= length:
        return ""
    return (
        f"sliding_window={window} is not modelled: attention is costed over all "
        f"{length} tokens of a sequence"
    )


def _dropout_note(config: Config) -> str:
    """A spec has dropout everywhere or nowhere; llama's kin have it in attention only."""
    rates = config.dropout()
    used = [key for key, rate in rates.items() if rate > 0]
    everywhere = len(used) == len(rates) and config.model_type in ("bert", "gpt2")
    if not used or everywhere:
        return ""
    return f"dropout is costed everywhere although only {', '.join(used)} is above 0"


def _head_note(config: Config) -> str:
    names = config.architectures()
    if config.model_type != "bert":
        if not names or any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
            return ""
        return f"architectures={', '.join(names)}: a language-model head is costed instead"
    if "BertForPreTraining" in names:
        return "the next-sentence classifier (2 x hidden_size + 2 parameters) is left out"
    if not names or any(name in BERT_CLASSES for name in names):
        return ""
    return f"architectures={', '.join(names)}: the encoder with its pooler is costed, no head"
