"""Names of modules in the files of each Hugging Face family.

Sources: transformers' modeling files of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from executor.weights.family import QKV, FamilyNames
from executor.weights.llama_names import (
    ATTENTION,
    DEEPSEEK,
    GEMMA2,
    GLM4,
    GLM4_MOE,
    LLAMA,
    MIXTRAL,
    PHI3,
    QWEN3_MOE,
    STARCODER2,
)

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
        **ATTENTION,
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
    **dict.fromkeys(("llama", "qwen2", "mistral", "qwen3", "seed_oss", "smollm3"), LLAMA),
    **dict.fromkeys(("gemma", "granite", "stablelm", "nemotron"), LLAMA),
    "phi3": PHI3,
    **dict.fromkeys(("gemma2", "gemma3_text"), GEMMA2),
    "glm4": GLM4,
    "starcoder2": STARCODER2,
    "gpt_neox": _NEOX,
    "bloom": _BLOOM,
    "opt": _OPT,
    "mixtral": MIXTRAL,
    "qwen3_moe": QWEN3_MOE,
    "glm4_moe": GLM4_MOE,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), DEEPSEEK),
}
"""Names by `model_type`."""
