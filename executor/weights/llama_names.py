"""Names of modules in the files of Llama and of the families made after it.

Sources: transformers' modeling files of each family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from executor.weights.family import GATED, QKV, FamilyNames

ATTENTION = {
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
LLAMA = FamilyNames(
    base="model.",
    layer="model.layers.{}.",
    ends={"embedding.token": "model.embed_tokens", "head.norm": "model.norm"}
    | {"head.logits": "lm_head"},
    inside={**ATTENTION, **_MLP},
)


def _mixture(inside: Mapping[str, str], block: str, gate: str, up: str, down: str) -> FamilyNames:
    """A Llama whose layers have experts: their block, and its names of an expert's products."""
    experts = f"{block}.experts.{{}}"
    return replace(
        LLAMA,
        inside={
            **inside,
            "mlp.router": f"{block}.gate",
            "mlp.experts.{}.up.0": f"{experts}.{gate}.weight",
            "mlp.experts.{}.up.1": f"{experts}.{up}.weight",
            "mlp.experts.{}.down": f"{experts}.{down}.weight",
        },
    )


MIXTRAL = _mixture(ATTENTION, "block_sparse_moe", "w1", "w3", "w2")
QWEN3_MOE = _mixture(LLAMA.inside, "mlp", "gate_proj", "up_proj", "down_proj")
_LATENT = {
    **{
        name: what for name, what in ATTENTION.items() if name.endswith("_norm") and "." not in name
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
DEEPSEEK = _mixture(_LATENT, "mlp", "gate_proj", "up_proj", "down_proj")
PHI3 = replace(
    LLAMA,
    inside={
        **LLAMA.inside,
        **dict.fromkeys(QKV, "self_attn.qkv_proj"),
        **dict.fromkeys(GATED, "mlp.gate_up_proj"),
    },
    joined=(QKV, GATED),
)
GEMMA2 = replace(
    LLAMA,
    inside={
        **LLAMA.inside,
        "attention_out_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
        "mlp_out_norm": "post_feedforward_layernorm",
    },
)
GLM4 = replace(
    LLAMA,
    inside={
        **LLAMA.inside,
        **dict.fromkeys(GATED, "mlp.gate_up_proj"),
        "attention_out_norm": "post_self_attn_layernorm",
        "mlp_out_norm": "post_mlp_layernorm",
    },
    joined=(GATED,),
)
GLM4_MOE = _mixture(
    {**ATTENTION, **{name: _LATENT[name] for name in _LATENT if name.startswith("mlp.")}},
    "mlp",
    "gate_proj",
    "up_proj",
    "down_proj",
)
STARCODER2 = replace(LLAMA, inside={**ATTENTION, "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"})
