"""Names of modules in the files of each Hugging Face family.

Sources: transformers' modeling files of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

QKV = ("attention.q", "attention.k", "attention.v")
GATED = ("mlp.gate", "mlp.fc1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyNames:
    """Names of modules in a family's files; those of a layer stand behind `layer`.

    `base` is the prefix that files of the model without its head leave out. Matrices of `turned`
    are stored (inputs, outputs); those of each of `joined` lie behind one another in one tensor,
    or with `by_head` each head's rows do. Files of other versions have `older` words in place of
    others.
    """

    base: str
    layer: str
    ends: Mapping[str, str]
    inside: Mapping[str, str]
    turned: bool = False
    joined: tuple[tuple[str, ...], ...] = ()
    by_head: bool = False
    older: Mapping[str, str] = field(default_factory=dict)


_ATTENTION = {
    "attention_norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.projection": "self_attn.o_proj",
    "attention.q_norm": "self_attn.q_norm",
    "attention.k_norm": "self_attn.k_norm",
    "mlp_norm": "post_attention_layernorm",
}
_MLP = {"mlp.gate": "mlp.gate_proj", "mlp.fc1": "mlp.up_proj", "mlp.fc2": "mlp.down_proj"}
_LLAMA = FamilyNames(
    base="model.",
    layer="model.layers.{}.",
    ends={"embedding.token": "model.embed_tokens", "head.norm": "model.norm"}
    | {"head.logits": "lm_head"},
    inside={**_ATTENTION, **_MLP},
)


def _mixture(inside: Mapping[str, str], block: str, gate: str, up: str, down: str) -> FamilyNames:
    """A Llama whose layers have experts: their block, and its names of an expert's products."""
    experts = f"{block}.experts.{{}}"
    return replace(
        _LLAMA,
        inside={
            **inside,
            "mlp.router": f"{block}.gate",
            "mlp.experts.{}.up.0": f"{experts}.{gate}.weight",
            "mlp.experts.{}.up.1": f"{experts}.{up}.weight",
            "mlp.experts.{}.down": f"{experts}.{down}.weight",
        },
    )


_MIXTRAL = _mixture(_ATTENTION, "block_sparse_moe", "w1", "w3", "w2")
_QWEN3_MOE = _mixture(_LLAMA.inside, "mlp", "gate_proj", "up_proj", "down_proj")
_LATENT = {
    **{
        name: what
        for name, what in _ATTENTION.items()
        if name.endswith("_norm") and "." not in name
    },
    "attention.q_down": "self_attn.q_a_proj",
    "attention.q_norm": "self_attn.q_a_layernorm",
    "attention.q_up": "self_attn.q_b_proj",
    "attention.kv_down": "self_attn.kv_a_proj_with_mqa",
    "attention.kv_norm": "self_attn.kv_a_layernorm",
    "attention.kv_up": "self_attn.kv_b_proj",
    "attention.projection": "self_attn.o_proj",
    **{f"mlp.shared.{name[4:]}": f"mlp.shared_experts.{what[4:]}" for name, what in _MLP.items()},
    **_MLP,
}
_DEEPSEEK = _mixture(_LATENT, "mlp", "gate_proj", "up_proj", "down_proj")
_GPT2 = FamilyNames(
    base="transformer.",
    layer="transformer.h.{}.",
    ends={
        "embedding.token": "transformer.wte",
        "embedding.positions": "transformer.wpe",
        "head.norm": "transformer.ln_f",
        "head.logits": "lm_head",
    },
    inside={
        "attention_norm": "ln_1",
        **dict.fromkeys(QKV, "attn.c_attn"),
        "attention.projection": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
    },
    turned=True,
    joined=(QKV,),
)
_BERT = FamilyNames(
    base="bert.",
    layer="bert.encoder.layer.{}.",
    ends={
        "embedding.token": "bert.embeddings.word_embeddings",
        "embedding.positions": "bert.embeddings.position_embeddings",
        "embedding.token_types": "bert.embeddings.token_type_embeddings",
        "embedding.norm": "bert.embeddings.LayerNorm",
        "head.pooler": "bert.pooler.dense",
        "head.transform": "cls.predictions.transform.dense",
        "head.transform_norm": "cls.predictions.transform.LayerNorm",
        "head.logits": "cls.predictions.decoder",
        "head.logits.bias": "cls.predictions.bias",
    },
    inside={
        "attention.q": "attention.self.query",
        "attention.k": "attention.self.key",
        "attention.v": "attention.self.value",
        "attention.projection": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "mlp.fc1": "intermediate.dense",
        "mlp.fc2": "output.dense",
        "mlp_norm": "output.LayerNorm",
    },
    older={"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"},
)
_ROBERTA = replace(
    _BERT,
    base="roberta.",
    layer=_BERT.layer.replace("bert.", "roberta.", 1),
    ends={name: what.replace("bert.", "roberta.", 1) for name, what in _BERT.ends.items()}
    | {
        "head.transform": "lm_head.dense",
        "head.transform_norm": "lm_head.layer_norm",
        "head.logits": "lm_head.decoder",
        "head.logits.bias": "lm_head.bias",
    },
)
_PHI3 = replace(
    _LLAMA,
    inside={
        **_LLAMA.inside,
        **dict.fromkeys(QKV, "self_attn.qkv_proj"),
        **dict.fromkeys(GATED, "mlp.gate_up_proj"),
    },
    joined=(QKV, GATED),
)
_GEMMA2 = replace(
    _LLAMA,
    inside={
        **_LLAMA.inside,
        "attention_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
    },
)
_GLM4 = replace(
    _LLAMA,
    inside={
        **_LLAMA.inside,
        **dict.fromkeys(GATED, "mlp.gate_up_proj"),
        "attention_out_norm": "post_self_attn_layernorm",
        "mlp_out_norm": "post_mlp_layernorm",
    },
    joined=(GATED,),
)
_GLM4_MOE = _mixture(
    {**_ATTENTION, **{name: _LATENT[name] for name in _LATENT if name.startswith("mlp.")}},
    "mlp",
    "gate_proj",
    "up_proj",
    "down_proj",
)
_STARCODER2 = replace(_LLAMA, inside={**_ATTENTION, "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"})
_NEOX = FamilyNames(
    base="gpt_neox.",
    layer="gpt_neox.layers.{}.",
    ends={
        "embedding.token": "gpt_neox.embed_in",
        "head.norm": "gpt_neox.final_layer_norm",
        "head.logits": "embed_out",
    },
    inside={
        "attention_norm": "input_layernorm",
        **dict.fromkeys(QKV, "attention.query_key_value"),
        "attention.projection": "attention.dense",
        "mlp_norm": "post_attention_layernorm",
        "mlp.fc1": "mlp.dense_h_to_4h",
        "mlp.fc2": "mlp.dense_4h_to_h",
    },
    joined=(QKV,),
    by_head=True,
    older={"embed_out": "lm_head"},
)
_BLOOM = replace(
    _NEOX,
    base="transformer.",
    layer="transformer.h.{}.",
    ends={
        "embedding.token": "transformer.word_embeddings",
        "embedding.norm": "transformer.word_embeddings_layernorm",
        "head.norm": "transformer.ln_f",
        "head.logits": "lm_head",
    },
    inside={
        name: what.replace("attention.", "self_attention.", 1)
        for name, what in _NEOX.inside.items()
    },
)
_OPT = FamilyNames(
    base="model.",
    layer="model.decoder.layers.{}.",
    ends={
        "embedding.token": "model.decoder.embed_tokens",
        "embedding.positions": "model.decoder.embed_positions",
        "head.norm": "model.decoder.final_layer_norm",
        "head.logits": "lm_head",
    },
    inside={
        **_ATTENTION,
        "attention.projection": "self_attn.out_proj",
        "attention_norm": "self_attn_layer_norm",
        "mlp_norm": "final_layer_norm",
        "mlp.fc1": "fc1",
        "mlp.fc2": "fc2",
    },
)
FAMILIES: Mapping[str, FamilyNames] = {
    "gpt2": _GPT2,
    "bert": _BERT,
    **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _ROBERTA),
    **dict.fromkeys(("llama", "qwen2", "mistral", "qwen3", "seed_oss", "smollm3"), _LLAMA),
    **dict.fromkeys(("gemma", "granite", "stablelm", "nemotron"), _LLAMA),
    "phi3": _PHI3,
    **dict.fromkeys(("gemma2", "gemma3_text"), _GEMMA2),
    "glm4": _GLM4,
    "starcoder2": _STARCODER2,
    "gpt_neox": _NEOX,
    "bloom": _BLOOM,
    "opt": _OPT,
    "mixtral": _MIXTRAL,
    "qwen3_moe": _QWEN3_MOE,
    "glm4_moe": _GLM4_MOE,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _DEEPSEEK),
}
"""Names by `model_type`."""
