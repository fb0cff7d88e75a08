"""Positions, rotations and latent projections that a model's attention cannot have."""

from __future__ import annotations

from parsim.errors import ModelError
from parsim.model.spec import TransformerSpec


def check_positions(spec: TransformerSpec) -> None:
    """Tables of positions that are too short."""
    if 0 < spec.positions < spec.seq_len:
        raise ModelError(
            f"seq_len={spec.seq_len} is longer than the {spec.positions} learned positions; "
            f"use seq_len <= {spec.positions}"
        )
    if 0 < spec.positions < spec.seq_len + spec.first_position:
        raise ModelError(
            f"first_position={spec.first_position} leaves {spec.positions - spec.first_position} "
            f"of {spec.positions} learned positions; use seq_len of at most as many"
        )


def _check_turned_part(spec: TransformerSpec) -> None:
    """The values of a head that are rotated are an even part of it."""
    if not spec.kv_lora_rank and (spec.rope_head_dim > spec.head_dim or spec.rope_head_dim % 2):
        raise ModelError(
            f"rope_head_dim={spec.rope_head_dim} must be even and at most "
            f"head_dim={spec.head_dim}, of which it is a part"
        )


def check_rotation(spec: TransformerSpec) -> None:
    """Bases and angles of rotations, and the values of a head that are rotated."""
    _check_turned_part(spec)
    for field in ("norm_epsilon", "rope_theta"):
        if getattr(spec, field) <= 0:
            raise ModelError(f"{field}={getattr(spec, field)} must be above 0")
    if spec.rope_scaling != "none":
        _check_stretch(spec)


def _check_stretch(spec: TransformerSpec) -> None:
    """Rotations that are made for more positions than the model was trained on."""
    if spec.rope_factor < 1:
        raise ModelError(
            f"rope_factor={spec.rope_factor} must be at least 1 with "
            f"rope_scaling={spec.rope_scaling}: it makes angles smaller"
        )
    if spec.rope_scaling == "linear":
        return
    if spec.rope_original_positions < 1:
        raise ModelError(
            f"rope_scaling={spec.rope_scaling} needs rope_original_positions, the length that the "
            f"model was made for before it was stretched"
        )
    if not 0 < spec.rope_low_freq_factor < spec.rope_high_freq_factor:
        raise ModelError(
            f"rope_low_freq_factor={spec.rope_low_freq_factor} must be above 0 and below "
            f"rope_high_freq_factor={spec.rope_high_freq_factor}"
        )


def check_latent(spec: TransformerSpec) -> None:
    """Latent attention (DeepSeek's MLA), and what cannot stand beside its projections."""
    if spec.full_every < 0:
        raise ModelError(f"full_every={spec.full_every} must be at least 0")
    if not spec.kv_lora_rank:
        return
    if spec.qk_norm or not spec.rope:
        given = "qk_norm=true" if spec.qk_norm else "rope=false"
        raise ModelError(
            f"{given} cannot stand beside kv_lora_rank={spec.kv_lora_rank}: latent attention has "
            f"norms between its projections, and rotates rope_head_dim values of each head"
        )
    if not 0 < spec.rope_head_dim < spec.head_dim:
        raise ModelError(
            f"rope_head_dim={spec.rope_head_dim} must be above 0 and below "
            f"head_dim={spec.head_dim}, of which it is a part"
        )
    if spec.num_key_value_heads != spec.num_attention_heads:
        raise ModelError(
            f"num_key_value_heads={spec.num_key_value_heads} differs from num_attention_heads="
            f"{spec.num_attention_heads}: latent attention makes keys and values for each head"
        )
