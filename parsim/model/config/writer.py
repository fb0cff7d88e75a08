"""The Hugging Face `config.json` of a spec: what `parsim.model.huggingface` reads, written.

A spec has no family; the one whose members have all its switches is taken. Mistral without a window
is Llama. Padding of the vocabulary, the kernel of attention and the name are not part of a config.
"""

from __future__ import annotations

from typing import Any

from parsim.model.config.families import BERT_CLASSES, FAMILIES
from parsim.model.config.family_of_spec import family_of
from parsim.model.config.file import ACTIVATIONS
from parsim.model.config.further_keys import FURTHER_KEYS
from parsim.model.config.rotation import scaling_block
from parsim.model.spec import TransformerSpec

DROPOUT = 0.1
"""Probability wherever a spec has dropout: that of the GPT-2 and BERT configurations."""


def config_from_spec(spec: TransformerSpec) -> dict[str, Any]:
    """The content of a `config.json`.

    Raises:
        ModelError: no family has all switches of the model.
    """
    kind = family_of(spec)
    bodies = {"gpt2": _gpt2_keys, "bert": _bert_keys, "roberta": _roberta_keys}
    bodies |= {"opt": _opt_keys, "bloom": _bloom_keys, "gpt_neox": _neox_keys}
    return {
        "model_type": kind,
        **bodies.get(kind, _llama_keys)(spec),
        **(FURTHER_KEYS[kind](spec) if kind in FURTHER_KEYS else {}),
        "vocab_size": spec.vocab_size,
        "tie_word_embeddings": spec.tied_embeddings,
    }


def _gpt2_keys(spec: TransformerSpec) -> dict[str, Any]:
    rates = ("resid_pdrop", "embd_pdrop", "attn_pdrop")
    return {
        "architectures": ["GPT2LMHeadModel"],
        **_activation(spec, "gpt2"),
        "n_layer": spec.num_layers,
        "n_embd": spec.hidden_size,
        "n_head": spec.num_attention_heads,
        "n_inner": spec.ffn_hidden_size,
        "n_positions": spec.positions,
        "layer_norm_epsilon": spec.norm_epsilon,
        **dict.fromkeys(rates, _rate(spec)),
    }


def _bert_keys(spec: TransformerSpec) -> dict[str, Any]:
    kinds = {pair: name for name, pair in reversed(list(BERT_CLASSES.items()))}
    rates = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return {
        "architectures": [kinds[spec.pooler, spec.head]],
        **_activation(spec, "bert"),
        **_usual_sizes(spec),
        "max_position_embeddings": spec.positions,
        "type_vocab_size": spec.token_types,
        "is_decoder": spec.causal,
        "layer_norm_eps": spec.norm_epsilon,
        **dict.fromkeys(rates, _rate(spec)),
    }


def _roberta_keys(spec: TransformerSpec) -> dict[str, Any]:
    keys = _bert_keys(spec)
    names = {"BertLMHeadModel": "BertForCausalLM", "BertForPreTraining": "BertForMaskedLM"}
    classes = [f"Roberta{names.get(name, name)[4:]}" for name in keys["architectures"]]
    return {**keys, "architectures": classes, "pad_token_id": spec.first_position - 1}


def _opt_keys(spec: TransformerSpec) -> dict[str, Any]:
    sizes = _usual_sizes(spec)
    rates = ("dropout", "attention_dropout")
    return {
        "architectures": ["OPTForCausalLM"],
        **_activation(spec, "opt"),
        **sizes,
        "ffn_dim": sizes.pop("intermediate_size"),
        "word_embed_proj_dim": spec.hidden_size,
        "max_position_embeddings": spec.positions - spec.first_position,
        "do_layer_norm_before": True,
        **dict.fromkeys(rates, _rate(spec)),
    }


def _bloom_keys(spec: TransformerSpec) -> dict[str, Any]:
    rates = ("hidden_dropout", "attention_dropout")
    return {
        "architectures": ["BloomForCausalLM"],
        "n_layer": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "n_head": spec.num_attention_heads,
        "seq_length": spec.seq_len,
        "layer_norm_epsilon": spec.norm_epsilon,
        **dict.fromkeys(rates, _rate(spec)),
    }


def _neox_keys(spec: TransformerSpec) -> dict[str, Any]:
    rates = ("hidden_dropout", "attention_dropout")
    return {
        "architectures": ["GPTNeoXForCausalLM"],
        **_activation(spec, "gpt_neox"),
        **_usual_sizes(spec),
        "max_position_embeddings": spec.seq_len,
        "layer_norm_eps": spec.norm_epsilon,
        "attention_bias": spec.qkv_bias,
        "use_parallel_residual": spec.parallel_block == "own_norms",
        "rotary_pct": _turned_share(spec),
        "rotary_emb_base": spec.rope_theta,
        **dict.fromkeys(rates, _rate(spec)),
    }


def _llama_keys(spec: TransformerSpec) -> dict[str, Any]:
    """Keys of Llama and its kin, whose record says what each is called."""
    kind = family_of(spec)
    family = FAMILIES[kind]
    named = {names[0]: key for key, names in family.switches.items()}
    biases = {key: getattr(spec, name) for name, key in named.items()}
    windowed = family.window is not None or kind in _WINDOWLESS
    return {
        "architectures": [_CLASSES[kind]],
        **_activation(spec, kind),
        **_usual_sizes(spec),
        "num_key_value_heads": spec.num_key_value_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.seq_len,
        family.epsilon[0]: spec.norm_epsilon,
        "rope_theta": spec.rope_theta,
        "rope_scaling": scaling_block(spec),
        **dict.fromkeys(family.dropout, _rate(spec)),
        **({"sliding_window": spec.window or None} if windowed else {}),
        **({} if family.latent else {"partial_rotary_factor": _turned_share(spec)}),
        **(dict.fromkeys(_WORDS) if kind in _LARGE_VOCABULARIES else {}),
        **biases,
    }


_WINDOWLESS = ("mixtral", "qwen2", "qwen3", "qwen3_moe")
"""Families whose files have a window that is not read, and is to be none."""


_LARGE_VOCABULARIES = ("phi3", "glm4", "smollm3")
"""Families whose classes take words of their published vocabularies for padding and ends."""

_WORDS = ("pad_token_id", "bos_token_id", "eos_token_id")


_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "granite": "GraniteForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "stablelm": "StableLmForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
    "nemotron": "NemotronForCausalLM",
}


def _usual_sizes(spec: TransformerSpec) -> dict[str, Any]:
    return {
        "num_hidden_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "num_attention_heads": spec.num_attention_heads,
        "intermediate_size": spec.ffn_hidden_size,
    }


def _turned_share(spec: TransformerSpec) -> float:
    return (spec.rope_head_dim or spec.head_dim) / spec.head_dim


def _activation(spec: TransformerSpec, kind: str) -> dict[str, str]:
    names = {ours: name for name, ours in reversed(list(ACTIVATIONS.items()))}
    return {FAMILIES[kind].activation: names[spec.activation_kind]}


def _rate(spec: TransformerSpec) -> float:
    return DROPOUT if spec.dropout else 0.0
