"""Keys of a model block that mean nothing without another key: an error can name what is missing.

Only what a scenario itself says is looked at: catalog entries and config files may hold more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from parsim.model.transformer import TransformerSpec

_NEEDED = {
    "num_experts": (
        *("experts_per_token", "expert_ffn_hidden_size", "shared_expert_ffn_hidden_size"),
        *("expert_groups", "dense_layers", "expert_every", "router_aux_loss_coef"),
        *("router_scoring", "router_bias", "routed_scaling_factor"),
    ),
    "kv_lora_rank": ("q_lora_rank", "value_head_dim"),
    "rope": ("rope_head_dim", "rope_interleaved", "unrotated_every"),
    "window": ("full_every", "window_rope_theta"),
    "positions": ("first_position",),
    "layer_pattern": ("mamba_heads", "mamba_head_dim", "mamba_state", "mamba_groups"),
    "rope_scaling": (
        *("rope_factor", "rope_original_positions", "rope_low_freq_factor"),
        *("rope_high_freq_factor", "rope_attention_factor"),
    ),
    "expert_groups": ("groups_per_token",),
    "lora_rank": ("lora_targets", "modules_to_save"),
}
"""Keys without which others have no effect, and these others."""

_USUAL = {field.name: field.default for field in fields(TransformerSpec)}


def idle_key(given: Mapping[str, Any], spec: TransformerSpec) -> tuple[str, str] | None:
    """A key that is given another value than the usual one and has no effect, and what it needs."""
    for needed, others in _NEEDED.items():
        if getattr(spec, needed) != _USUAL[needed]:
            continue
        for key in others:
            if key in given and given[key] != _USUAL[key]:
                return key, needed
    return None
