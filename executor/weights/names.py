"""What Hugging Face calls each of our parameters, and how it stores it.

    ours                              theirs
    layers.3.attention.q.weight       model.layers.3.self_attn.q_proj.weight
    layers.3.attention.q.weight       transformer.h.3.attn.c_attn.weight  part 0 of 3, transposed
    layers.3.mlp.experts.5.up.0       model.layers.3.block_sparse_moe.experts.5.w1.weight

Ours are those of a `Stage`, but for experts, each of which counts for itself: `up.0` is the gate
and `up.1` what is gated. Sources: transformers' modeling files of each family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from executor.model.first_values import OUTPUT_TABLE, TOKEN_TABLE
from parsim.model.config.family_of_spec import family_of
from parsim.model.spec import TransformerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    """A tensor of a published file, of which ours is one of `parts` along its first dim.

    Where it is `transposed`, that holds after turning it round.
    """

    name: str
    part: int = 0
    parts: int = 1
    transposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyNames:
    """Names of modules in a family's files; those of a layer stand behind `layer`.

    `base` is the prefix that files of the model without its head leave out. Matrices of `turned`
    are stored (inputs, outputs); those of `joined` lie behind one another in one tensor.
    """

    base: str
    layer: str
    ends: Mapping[str, str]
    inside: Mapping[str, str]
    turned: bool = False
    joined: tuple[str, ...] = ()


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
        **dict.fromkeys(("attention.q", "attention.k", "attention.v"), "attn.c_attn"),
        "attention.projection": "attn.c_proj",
        "mlp_norm": "ln_2",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
    },
    turned=True,
    joined=("attention.q", "attention.k", "attention.v"),
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
)
FAMILIES: Mapping[str, FamilyNames] = {
    "gpt2": _GPT2,
    "bert": _BERT,
    "llama": _LLAMA,
    "qwen2": _LLAMA,
    "mistral": _LLAMA,
    "qwen3": _LLAMA,
    "mixtral": _MIXTRAL,
    "qwen3_moe": _QWEN3_MOE,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
}

_EXPERT = re.compile(r"^mlp\.experts\.(\d+)\.(up\.[01]|down)$")


def theirs(spec: TransformerSpec, ours: str) -> Theirs:
    """The published tensor that holds one of our parameters.

    Raises:
        ModelError: the model is of no published family.
    """
    family = FAMILIES[family_of(spec)]
    if ours == OUTPUT_TABLE and spec.tied_embeddings:
        ours = TOKEN_TABLE
    if ours == "head.logits.bias":  # BERT's, which hangs above its decoder
        return Theirs(name="cls.predictions.bias")
    if not ours.startswith("layers."):
        module, kind = ours.rsplit(".", 1)
        return Theirs(name=f"{family.ends[module]}.{kind}")
    _, number, inner = ours.split(".", 2)
    return _in_layer(spec, family, family.layer.format(number), inner)


def _in_layer(spec: TransformerSpec, family: FamilyNames, prefix: str, inner: str) -> Theirs:
    """The tensor of a layer's parameter, all of whose names begin with `prefix`."""
    expert = _EXPERT.match(inner)
    if expert is not None:
        pattern = family.inside[f"mlp.experts.{{}}.{expert[2]}"]
        return Theirs(name=prefix + pattern.format(expert[1]))
    if inner == "attention.q_up.weight" and not spec.q_lora_rank:
        return Theirs(name=f"{prefix}self_attn.q_proj.weight")
    if inner == "mlp.router.bias_of_choice":
        return Theirs(name=f"{prefix}mlp.gate.e_score_correction_bias")
    module, kind = inner.rsplit(".", 1)
    joined = module in family.joined
    return Theirs(
        name=f"{prefix}{family.inside[module]}.{kind}",
        part=family.joined.index(module) if joined else 0,
        parts=len(family.joined) if joined else 1,
        transposed=family.turned and kind == "weight" and not module.endswith("norm"),
    )


def also_called(spec: TransformerSpec, name: str) -> Iterator[str]:
    """A published name, and what older files and files without a head have instead."""
    base = FAMILIES[family_of(spec)].base
    older = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    older = older.replace("LayerNorm.bias", "LayerNorm.beta")
    for full in dict.fromkeys((name, older)):
        yield full
        if full.startswith(base):
            yield full.removeprefix(base)
