"""What a Hugging Face `config.json` asks for and a spec leaves out or rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parsim.model.config_file import Config
from parsim.model.huggingface import BERT_CLASSES


def notes_from_config(config: Mapping[str, Any], *, seq_len: int | None = None) -> tuple[str, ...]:
    """Say in one line each what the config asks for and the spec leaves out or rounds."""
    fields = Config.open(config)
    notes = (_window_note(fields, seq_len), _dropout_note(fields), _head_note(fields))
    return tuple(note for note in notes if note)


def _window_note(config: Config, seq_len: int | None) -> str:
    """Sliding-window attention is accepted and costed as attention over the whole sequence."""
    if config.model_type in ("qwen2", "qwen3_moe") and not config.flag("use_sliding_window", False):
        return ""
    if config.model_type not in ("mistral", "qwen2", "mixtral", "qwen3_moe"):
        return ""
    absent = 4096 if config.model_type in ("mistral", "qwen2") else None
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
