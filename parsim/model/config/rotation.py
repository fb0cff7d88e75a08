"""Base and scaling of rotary positions in a Hugging Face `config.json`.

Files up to transformers 4 have `rope_theta` and `rope_scaling`; later ones have both in
`rope_parameters`.
"""

from __future__ import annotations

from typing import Any

from parsim.errors import ModelError, shown
from parsim.model.config.file import Config
from parsim.model.spec import TransformerSpec

# names in a file -> ours
_KINDS = {"default": "none", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}

# (low, high, their defaults): turns in the original length below and above which angles are scaled
# wholly and not at all
_BORDERS = {
    "llama3": (("low_freq_factor", 1.0), ("high_freq_factor", 4.0)),
    "yarn": (("beta_slow", 1.0), ("beta_fast", 32.0)),
}


def rotation(config: Config) -> dict[str, Any]:
    """Fields of a spec about its rotary positions.

    Raises:
        ModelError: a scaling that is not known here.
    """
    newer = config.within("rope_parameters")
    newer = newer and (newer.within("full_attention") or newer)
    scaled = newer or config.within("rope_scaling")
    stated = config.number("rope_theta", config.number("rotary_emb_base", config.family.theta))
    theta = (newer or config).number("rope_theta", stated)
    return {
        "rope_theta": theta,
        **_turned_part(config, newer or config),
        **(_scaling(scaled, config) if scaled else {}),
    }


def _turned_part(config: Config, newer: Config) -> dict[str, int]:
    """How many values of a head turn, where not all do; a latent head has its own key."""
    stated = config.number("rotary_pct", config.family.rotary_share)
    share = newer.number("partial_rotary_factor", config.number("partial_rotary_factor", stated))
    if config.family.latent or share == 1:
        return {}
    _, width, heads = config.family.sizes
    return {"rope_head_dim": int(config.head_dim(width, heads) * share)}


def _scaling(scaled: Config, config: Config) -> dict[str, Any]:
    """How rotations are stretched: not at all, evenly, or by frequency."""
    kind = _kind(scaled, config)
    if kind == "none":
        return {"rope_scaling": kind}
    fields: dict[str, Any] = {"rope_scaling": kind, "rope_factor": scaled.number("factor", 1.0)}
    if kind == "linear":
        return fields
    (low, least), (high, most) = _BORDERS[kind]
    original = "original_max_position_embeddings"
    return {
        **fields,
        "rope_original_positions": scaled.amount(
            original, config.amount(original, config.longest_sequence())
        ),
        "rope_low_freq_factor": scaled.number(low, least),
        "rope_high_freq_factor": scaled.number(high, most),
        "rope_attention_factor": _attention_factor(scaled),
    }


def _kind(scaled: Config, config: Config) -> str:
    """The way of stretching, in parsim's words.

    Raises:
        ModelError: one that is not known here.
    """
    stated = scaled.values.get("rope_type", scaled.values.get("type", "default"))
    kind = _KINDS.get(stated) if isinstance(stated, str) else None
    if kind is None:
        raise ModelError(
            f"rope_type={shown(stated)} in a {config.model_type} config is not supported; "
            f"supported: {', '.join(_KINDS)}"
        )
    return kind


def _attention_factor(scaled: Config) -> float:
    """What YaRN multiplies sines and cosines by; 0 where it follows from the factor.

    `mscale` and `mscale_all_dim` (DeepSeek) give (0.1 mscale ln s + 1) / (0.1 mscale_all ln s + 1):
    1 where they are equal.
    """
    several, every = scaled.number("mscale", 0.0), scaled.number("mscale_all_dim", 0.0)
    if several and several == every:
        return 1.0
    return scaled.number("attention_factor", 0.0)


def scaling_block(spec: TransformerSpec) -> dict[str, Any] | None:
    """What `rope_scaling` of a `config.json` says of a spec's rotary positions."""
    kind = spec.rope_scaling
    if kind == "none":
        return None
    block: dict[str, Any] = {"rope_type": kind, "factor": spec.rope_factor}
    if kind == "linear":
        return block
    (low, _), (high, _) = _BORDERS[kind]
    block |= {
        "original_max_position_embeddings": spec.rope_original_positions,
        low: spec.rope_low_freq_factor,
        high: spec.rope_high_freq_factor,
    }
    if spec.rope_attention_factor:
        block["attention_factor"] = spec.rope_attention_factor
    return block
