"""Read a Hugging Face `config.json` (a plain dict; transformers is not needed).

A size that decides the parameter count must be in the file. Only switches, head counts and
dropout fall back on the default of the family, which is that of its transformers
configuration class (transformers/models/<model_type>/configuration_<model_type>.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsim.errors import ModelError, ScenarioError, did_you_mean
from parsim.model.transformer import Head, TransformerSpec, check_spec

_LLAMA_FLAGS = {
    "rope": True,
    "rms_norm": True,
    "gated_mlp": True,
    "qkv_bias": False,
    "projection_bias": False,
    "mlp_bias": False,
    "tied_embeddings": False,
}

_BERT_FLAGS = {
    "token_types": 2,
    "post_norm": True,
    "causal": False,
    "pooler": True,
    "head": "none",
}

FAMILY_FLAGS: Mapping[str, Mapping[str, Any]] = {
    "bert": _BERT_FLAGS,
    "gpt2": {},
    "llama": _LLAMA_FLAGS,
    "mistral": _LLAMA_FLAGS,
    "qwen2": {**_LLAMA_FLAGS, "qkv_bias": True},
    "mixtral": _LLAMA_FLAGS,
    "qwen3_moe": {**_LLAMA_FLAGS, "qk_norm": True},
    "gpt_oss": {
        **_LLAMA_FLAGS,
        "qkv_bias": True,
        "projection_bias": True,
        "mlp_bias": True,
        "window_every": 2,
    },
    "deepseek_v2": _LLAMA_FLAGS,
    "deepseek_v3": _LLAMA_FLAGS,
    "kimi_k2": _LLAMA_FLAGS,
    "nemotron_h": {**_LLAMA_FLAGS, "rope": False, "gated_mlp": False},
}
"""Fields of TransformerSpec that every member of a family shares, where not the spec's default."""

# keys of depth, width and query heads
_USUAL_SIZE_KEYS = ("num_hidden_layers", "hidden_size", "num_attention_heads")
_SIZE_KEYS = {"gpt2": ("n_layer", "n_embd", "n_head")}

# Number of key-value heads where the key is absent; None means one for each query head. A null
# value means one for each query head in every family.
_DEFAULT_KV_HEADS: Mapping[str, int | None] = {
    "llama": None,
    "mistral": 8,
    "qwen2": 32,
    "mixtral": 8,
    "qwen3_moe": 4,
    "gpt_oss": 8,
}

_LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
"""Families with multi-head latent attention, whose heads have two parts."""

# BERT class -> (pooler, head); the other classes put a small classifier on the encoder.
_BERT_CLASSES: Mapping[str, tuple[bool, Head]] = {
    "BertModel": (True, "none"),
    "BertForPreTraining": (True, "mlm"),
    "BertForMaskedLM": (False, "mlm"),
    "BertLMHeadModel": (False, "mlm"),
}

# dropout probability -> default, for each family
_DROPOUT_KEYS: Mapping[str, Mapping[str, float]] = {
    "bert": {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "gpt2": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    "llama": {"attention_dropout": 0.0},
    "mistral": {"attention_dropout": 0.0},
    "qwen2": {"attention_dropout": 0.0},
    "mixtral": {"attention_dropout": 0.0},
    "qwen3_moe": {"attention_dropout": 0.0},
    "gpt_oss": {"attention_dropout": 0.0},
    "deepseek_v2": {"attention_dropout": 0.0},
    "deepseek_v3": {"attention_dropout": 0.0},
    "kimi_k2": {"attention_dropout": 0.0},
}


def read_config(path: Path) -> dict[str, Any]:
    """Read a `config.json`, or the one inside a model's folder, as a dict.

    Raises:
        ScenarioError: the file is missing, unreadable, not JSON or not a JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ScenarioError(
            f"{file}: no such file; give the path of a Hugging Face config.json"
        ) from None
    except OSError as error:
        raise ScenarioError(f"{file}: cannot be read: {error.strerror}") from None
    except json.JSONDecodeError as error:
        where = f"{file}:{error.lineno}:{error.colno}"
        raise ScenarioError(f"{where} not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ScenarioError(f"{file}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ScenarioError(
            f'{file}:1:1 must be a JSON object like {{"model_type": "llama", ...}}, '
            f"got a {type(config).__name__}"
        )
    return config


def spec_from_config(
    config: Mapping[str, Any], *, name: str, seq_len: int | None = None
) -> TransformerSpec:
    """Turn the content of a `config.json` into a spec called `name`.

    `seq_len` defaults to the longest sequence the model was made for (`n_positions`,
    `max_position_embeddings`). What the spec cannot express is told by `notes_from_config`.

    Raises:
        ModelError: the model type is not supported, a key is missing or has a wrong value.
    """
    fields = _Config.open(config)
    flags = FAMILY_FLAGS[fields.model_type]
    known = {**flags, **_sizes(fields), **_READERS[fields.model_type](fields)}
    length = fields.longest_sequence() if seq_len is None else seq_len
    spec = TransformerSpec(name=name, seq_len=length, **known)
    check_spec(spec)
    return spec


def notes_from_config(config: Mapping[str, Any], *, seq_len: int | None = None) -> tuple[str, ...]:
    """Say in one line each what the config asks for and the spec leaves out or rounds."""
    fields = _Config.open(config)
    notes = (_window_note(fields, seq_len), _dropout_note(fields), _head_note(fields))
    return tuple(note for note in notes if note)


@dataclass(frozen=True, slots=True)
class _Config:
    """The values of a config with typed access; every error names key, value and model type."""

    values: Mapping[str, Any]
    model_type: str

    @staticmethod
    def open(config: Mapping[str, Any]) -> _Config:
        supported = ", ".join(sorted(_READERS))
        if "model_type" not in config:
            raise ModelError(f"config has no key 'model_type'; supported: {supported}")
        model_type = config["model_type"]
        if not isinstance(model_type, str) or model_type not in _READERS:
            guess = did_you_mean(str(model_type), _READERS)
            raise ModelError(
                f"model_type={json.dumps(model_type, default=repr)} is not supported{guess}; "
                f"supported: {supported}"
            )
        return _Config(config, model_type)

    def _wrong(self, key: str, wanted: str) -> ModelError:
        value = json.dumps(self.values[key], default=repr)
        return ModelError(f"{key}={value} in a {self.model_type} config must be {wanted}")

    def integer(self, key: str) -> int:
        """A whole number of at least 1 that must be in the file."""
        if key not in self.values:
            raise ModelError(
                f"{self.model_type} config has no key '{key}'; add it, it decides the model's size"
            )
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(key, "a whole number of at least 1")
        return value

    def amount(self, key: str, default: int) -> int:
        """A whole number that may be 0; `default` where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(key, "a whole number of at least 0")
        return value

    def optional_integer(self, key: str, default: int | None) -> int | None:
        """The same, or `default` where the key is absent, or None where it is null."""
        if key not in self.values:
            return default
        return None if self.values[key] is None else self.integer(key)

    def flag(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def probability(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        if value is None:
            return 0.0
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:
            raise self._wrong(key, "a number from 0 to 1")
        return float(value)

    def architectures(self) -> tuple[str, ...]:
        value = self.values.get("architectures")
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong("architectures", "a list of class names")
        return tuple(value)

    def head_dim(self, width: str, heads: str) -> int:
        """Width of a head: the file's in llama and its kin, else an equal share."""
        if self.model_type in _LATENT:
            return self.integer("qk_nope_head_dim") + self.integer("qk_rope_head_dim")
        if self.model_type in _DEFAULT_KV_HEADS:
            stated = self.optional_integer("head_dim", None)
            if stated is not None:
                return stated
        size, count = self.integer(width), self.integer(heads)
        if size % count:
            raise ModelError(f"{heads}={count} does not divide {width}={size}")
        return size // count

    def longest_sequence(self) -> int:
        """What the model was made for."""
        gpt2 = self.model_type == "gpt2"
        return self.integer("n_positions" if gpt2 else "max_position_embeddings")

    def dropout(self) -> dict[str, float]:
        keys = _DROPOUT_KEYS[self.model_type]
        return {key: self.probability(key, default) for key, default in keys.items()}

    def require(self, key: str, expected: str | bool) -> None:
        """Refuse what would change the sizes and no spec can express."""
        if self.values.get(key, expected) != expected:
            raise self._wrong(key, f"{json.dumps(expected)}; anything else is not supported")


def _sizes(config: _Config) -> dict[str, Any]:
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
    }


def _gpt2(config: _Config) -> dict[str, Any]:
    config.require("add_cross_attention", False)
    return {
        "ffn_hidden_size": config.optional_integer("n_inner", None) or 4 * config.integer("n_embd"),
        "positions": config.integer("n_positions"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def _bert(config: _Config) -> dict[str, Any]:
    config.require("add_cross_attention", False)
    config.require("position_embedding_type", "absolute")
    known = [name for name in config.architectures() if name in _BERT_CLASSES]
    pooler, head = _BERT_CLASSES[known[0] if known else "BertModel"]
    return {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "positions": config.integer("max_position_embeddings"),
        "token_types": config.optional_integer("type_vocab_size", 2) or 0,
        "causal": config.flag("is_decoder", False),
        "pooler": pooler,
        "head": head,
        "tied_embeddings": config.flag("tie_word_embeddings", True),
    }


def _llama(config: _Config) -> dict[str, Any]:
    """Llama and its kin, which differ in biases and defaults only."""
    default_kv_heads = _DEFAULT_KV_HEADS[config.model_type]
    kv_heads = config.optional_integer("num_key_value_heads", default_kv_heads)
    fields: dict[str, Any] = {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
    }
    if kv_heads is not None:
        fields["num_key_value_heads"] = kv_heads
    if config.model_type == "llama":
        # attention_bias is on all four projections, mlp_bias on all three
        fields["qkv_bias"] = fields["projection_bias"] = config.flag("attention_bias", False)
        fields["mlp_bias"] = config.flag("mlp_bias", False)
    return fields


def _mixtral(config: _Config) -> dict[str, Any]:
    width = config.integer("intermediate_size")
    return {
        **_llama(config),
        "num_experts": config.integer("num_local_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": width,
    }


def _gpt_oss(config: _Config) -> dict[str, Any]:
    return {**_mixtral(config), "window": config.amount("sliding_window", 128)}


def _qwen3_moe(config: _Config) -> dict[str, Any]:
    only = config.values.get("mlp_only_layers") or []
    if only != list(range(len(only))):
        raise ModelError(
            f"mlp_only_layers={only} in a qwen3_moe config must be the first layers; anything "
            f"else is not supported"
        )
    return {
        **_llama(config),
        "num_experts": config.integer("num_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": config.integer("moe_intermediate_size"),
        "dense_layers": len(only),
        "expert_every": config.amount("decoder_sparse_step", 1),
    }


def _deepseek(config: _Config) -> dict[str, Any]:
    """DeepSeek V2 and V3, and what is made after them: latent attention and shared experts."""
    width = config.integer("moe_intermediate_size")
    return {
        "ffn_hidden_size": config.integer("intermediate_size"),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "num_experts": config.integer("n_routed_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_ffn_hidden_size": width,
        "shared_expert_ffn_hidden_size": width * config.amount("n_shared_experts", 0),
        "dense_layers": config.amount("first_k_dense_replace", 0),
        "expert_every": config.amount("moe_layer_freq", 1),
        "q_lora_rank": config.amount("q_lora_rank", 0),
        "kv_lora_rank": config.integer("kv_lora_rank"),
        "rope_head_dim": config.integer("qk_rope_head_dim"),
        "value_head_dim": config.integer("v_head_dim"),
    }


_READERS: Mapping[str, Callable[[_Config], dict[str, Any]]] = {
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "mixtral": _mixtral,
    "qwen3_moe": _qwen3_moe,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
}


def _window_note(config: _Config, seq_len: int | None) -> str:
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


def _dropout_note(config: _Config) -> str:
    """A spec has dropout everywhere or nowhere; llama's kin have it in attention only."""
    rates = config.dropout()
    used = [key for key, rate in rates.items() if rate > 0]
    everywhere = len(used) == len(rates) and config.model_type in ("bert", "gpt2")
    if not used or everywhere:
        return ""
    return f"dropout is costed everywhere although only {', '.join(used)} is above 0"


def _head_note(config: _Config) -> str:
    names = config.architectures()
    if config.model_type != "bert":
        if not names or any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in names):
            return ""
        return f"architectures={', '.join(names)}: a language-model head is costed instead"
    if "BertForPreTraining" in names:
        return "the next-sentence classifier (2 x hidden_size + 2 parameters) is left out"
    if not names or any(name in _BERT_CLASSES for name in names):
        return ""
    return f"architectures={', '.join(names)}: the encoder with its pooler is costed, no head"
