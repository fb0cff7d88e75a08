"""Specs from the content of a Hugging Face `config.json` (transformers is not needed).

A size that decides the parameter count must be in the file; what may be left out falls back on the
family's default (`config/file.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parsim.model.config import dense, mixtures
from parsim.model.config.dense import as_bert
from parsim.model.config.families import BERT_CLASSES, unlike_note
from parsim.model.config.file import Config
from parsim.model.transformer import TransformerSpec, check_spec


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
    known = {**fields.family.flags, **_sizes(fields), **_READERS[fields.model_type](fields)}
    length = fields.longest_sequence() if seq_len is None else seq_len
    spec = TransformerSpec(name=name, seq_len=length, **known)
    check_spec(spec)
    return spec


def _sizes(config: Config) -> dict[str, Any]:
    """Fields that every family has, under its own key names."""
    layers, width, heads = config.family.sizes
    return {
        "num_layers": config.integer(layers),
        "hidden_size": config.integer(width),
        "num_attention_heads": config.integer(heads),
        "num_key_value_heads": config.integer(heads),
        "head_dim": config.head_dim(width, heads),
        "vocab_size": config.integer("vocab_size"),
        "dropout": any(config.dropout().values()),
        "norm_epsilon": config.norm_epsilon(),
        "activation": config.activation(),
    }


_READERS: Mapping[str, Callable[[Config], dict[str, Any]]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), dense.bert),
    "gpt2": dense.gpt2,
    "opt": dense.opt,
    "bloom": dense.bloom,
    "gpt_neox": dense.gpt_neox,
    **dict.fromkeys(("llama", "mistral", "phi3"), dense.llama),
    "gemma": dense.gemma,
    "granite": dense.granite,
    "smollm3": dense.smollm3,
    **dict.fromkeys(("nemotron", "qwen2", "qwen3", "glm4", "seed_oss", "starcoder2"), dense.llama),
    **dict.fromkeys(("gemma2", "gemma3_text"), dense.windowed_gemma),
    "stablelm": dense.stablelm,
    "llama4_text": mixtures.llama4,
    "glm4_moe": mixtures.glm4_moe,
    "mixtral": mixtures.mixtral,
    "qwen3_moe": mixtures.qwen3_moe,
    "gpt_oss": mixtures.gpt_oss,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), mixtures.deepseek),
}


def notes_from_config(config: Mapping[str, Any], *, seq_len: int | None = None) -> tuple[str, ...]:
    """Say in one line each what the config asks for and the spec leaves out or rounds."""
    fields = Config.open(config)
    notes = (
        _parts_note(fields),
        _window_note(fields, seq_len),
        _dropout_note(fields),
        _head_note(fields),
        unlike_note(fields.model_type),
    )
    return tuple(note for note in notes if note)


def _parts_note(config: Config) -> str:
    """Only one part of what sees images too is a transformer of the kind that a spec describes."""
    return config.part_of and f"{config.part_of}: its text part alone is costed"


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
    everywhere = len(used) == len(rates) and len(rates) > 1
    if not used or everywhere:
        return ""
    return f"dropout is costed everywhere although only {', '.join(used)} is above 0"


def _head_note(config: Config) -> str:
    stated = config.architectures()
    names, listed = tuple(map(as_bert, stated)), f"architectures={', '.join(stated)}"
    if not config.family.flags.get("post_norm"):
        if not names or any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
            return ""
        return f"{listed}: a language-model head is costed instead"
    if "BertForPreTraining" in names:
        return "the next-sentence classifier (2 x hidden_size + 2 parameters) is left out"
    if not names or any(name in BERT_CLASSES for name in names):
        return ""
    return f"{listed}: the encoder with its pooler is costed, no head"
