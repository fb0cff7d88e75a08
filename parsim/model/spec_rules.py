"""Which sizes of a transformer contradict each other; sizes replaced, and checked again."""

from __future__ import annotations

from dataclasses import replace

from parsim.errors import ModelError, did_you_mean, shown
from parsim.model.adapters import EMBEDDING, HEAD, SAVED, TARGETS
from parsim.model.spec import TransformerSpec

MAX_LAYERS = 10_000
"""Ten times the deepest transformer trained (Wang et al. 2022, DeepNet: 1,000); more is a slip in a
file, and would exhaust memory."""


SIZES = (
    "num_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "ffn_hidden_size",
    "vocab_size",
    "seq_len",
)
"""Fields of a spec that are at least 1."""


def with_options(spec: TransformerSpec, **changes: object) -> TransformerSpec:
    """Return the spec with some fields replaced, checked again."""
    changed = replace(spec, **changes)  # type: ignore[arg-type]
    check_spec(changed)
    return changed


def check_spec(spec: TransformerSpec) -> None:
    """Raise ModelError where sizes contradict each other."""
    for field in SIZES:
        if getattr(spec, field) < 1:
            raise ModelError(f"{field}={getattr(spec, field)} must be at least 1")
    if spec.num_layers > MAX_LAYERS:
        raise ModelError(f"num_layers={spec.num_layers} is above {MAX_LAYERS}")
    if spec.num_attention_heads % spec.num_key_value_heads:
        raise ModelError(
            f"num_key_value_heads={spec.num_key_value_heads} does not divide "
            f"num_attention_heads={spec.num_attention_heads}"
        )
    if spec.padded_vocab_size is not None and spec.padded_vocab_size < spec.vocab_size:
        raise ModelError(
            f"padded_vocab_size={spec.padded_vocab_size} is below vocab_size={spec.vocab_size}"
        )
    _check_order(spec)
    _check_positions(spec)
    _check_scales(spec)
    _check_adapters(spec)
    _check_samples(spec)
    _check_rotation(spec)
    _check_pattern(spec)
    _check_experts(spec)
    _check_latent(spec)


def _check_order(spec: TransformerSpec) -> None:
    """Norms and parts of a layer that cannot stand as the spec has them."""
    if spec.norms_after and (spec.post_norm or spec.layer_pattern):
        beside = "post_norm" if spec.post_norm else "layer_pattern"
        raise ModelError(f"norms_after=true cannot stand beside {beside}")
    if spec.parallel_block != "none" and (spec.post_norm or spec.norms_after or spec.num_experts):
        raise ModelError(
            f"parallel_block={spec.parallel_block} cannot stand beside post_norm, norms_after or "
            f"num_experts"
        )


def _check_positions(spec: TransformerSpec) -> None:
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


def _check_scales(spec: TransformerSpec) -> None:
    for field in ("embedding_scale", "residual_scale", "logit_scale"):
        if getattr(spec, field) <= 0:
            raise ModelError(f"{field}={getattr(spec, field)} must be above 0; 1 changes nothing")
    for field in ("attention_scale", "attention_cap", "logit_cap", "window_rope_theta"):
        if getattr(spec, field) < 0:
            raise ModelError(f"{field}={getattr(spec, field)} must be at least 0")
    scores = "alibi" if spec.alibi else "attention_cap"
    if (spec.alibi or spec.attention_cap) and (spec.kv_lora_rank or not spec.causal):
        beside = "kv_lora_rank" if spec.kv_lora_rank else "causal=false"
        raise ModelError(f"{scores}={getattr(spec, scores)} cannot stand beside {beside}")


def _check_adapters(spec: TransformerSpec) -> None:
    if spec.lora_rank < 0:
        raise ModelError(f"lora_rank={spec.lora_rank} must be at least 0")
    if spec.lora_targets and not spec.lora_rank:
        raise ModelError("lora_targets needs lora_rank, the rank of the adapters")
    unknown = next((name for name in spec.lora_targets if name not in TARGETS), None)
    if unknown is not None:
        raise ModelError(
            f"lora_targets={shown(unknown)} is unknown{did_you_mean(unknown, TARGETS)}; "
            f"allowed: {', '.join(TARGETS)}"
        )
    if spec.lora_rank > spec.hidden_size:
        raise ModelError(
            f"lora_rank={spec.lora_rank} is above hidden_size={spec.hidden_size}: adapters are of "
            f"a lower rank than what they stand beside"
        )
    _check_saved(spec)


def _check_saved(spec: TransformerSpec) -> None:
    """Modules trained whole beside adapters must be there; a tied table is both of them."""
    saved = spec.modules_to_save
    if saved and not spec.lora_rank:
        raise ModelError("modules_to_save needs lora_rank: without adapters all is trained")
    unknown = next((name for name in saved if name not in SAVED), None)
    if unknown is not None:
        raise ModelError(
            f"modules_to_save={shown(unknown)} is unknown{did_you_mean(unknown, SAVED)}; "
            f"allowed: {', '.join(SAVED)}"
        )
    if HEAD in saved and spec.head == "none":
        raise ModelError(f"modules_to_save={HEAD}: head=none has no matrix of logits")
    if len(set(saved)) == 1 and spec.tied_embeddings and spec.head != "none":
        raise ModelError(
            f"modules_to_save={saved[0]}: with tied_embeddings=true table and head are one matrix; "
            f"name both {EMBEDDING} and {HEAD}, or neither"
        )


def _check_samples(spec: TransformerSpec) -> None:
    """Packed samples are parts of a sequence; what is not attention would have to know of them."""
    if not 0 <= spec.sample_length <= spec.seq_len:
        raise ModelError(
            f"sample_length={spec.sample_length} must be from 0 (one sample) to "
            f"seq_len={spec.seq_len}, which samples are packed to"
        )
    if spec.sample_length and spec.kv_lora_rank:
        raise ModelError("sample_length beside kv_lora_rank: packed latent attention is not priced")


def _check_turned_part(spec: TransformerSpec) -> None:
    if not spec.kv_lora_rank and (spec.rope_head_dim > spec.head_dim or spec.rope_head_dim % 2):
        raise ModelError(
            f"rope_head_dim={spec.rope_head_dim} must be even and at most "
            f"head_dim={spec.head_dim}, of which it is a part"
        )


def _check_rotation(spec: TransformerSpec) -> None:
    _check_turned_part(spec)
    for field in ("norm_epsilon", "rope_theta"):
        if getattr(spec, field) <= 0:
            raise ModelError(f"{field}={getattr(spec, field)} must be above 0")
    if spec.rope_scaling == "none":
        return
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


def _check_pattern(spec: TransformerSpec) -> None:
    pattern = spec.layer_pattern
    if not pattern:
        return
    if len(pattern) != spec.num_layers or set(pattern) - set("M*E-"):
        raise ModelError(
            f"layer_pattern='{shown(pattern)}' must name each of num_layers={spec.num_layers} "
            f"layers: M (Mamba-2), * (attention), E (experts) or - (MLP)"
        )
    if "M" in pattern and min(spec.mamba_heads, spec.mamba_head_dim, spec.mamba_state) < 1:
        raise ModelError("layer_pattern with M needs mamba_heads, mamba_head_dim and mamba_state")


def _check_expert_groups(spec: TransformerSpec) -> None:
    groups = spec.expert_groups
    if groups < 1 or spec.num_experts % groups:
        raise ModelError(
            f"expert_groups={groups} must divide num_experts={spec.num_experts} into equal groups"
        )
    if not 1 <= spec.groups_per_token <= groups:
        raise ModelError(
            f"groups_per_token={spec.groups_per_token} must be from 1 to expert_groups={groups}"
        )
    within = spec.groups_per_token * spec.num_experts // groups
    if spec.experts_per_token > within:
        raise ModelError(
            f"experts_per_token={spec.experts_per_token} must be at most the {within} experts of "
            f"groups_per_token={spec.groups_per_token} groups"
        )


def _check_experts(spec: TransformerSpec) -> None:
    if not spec.num_experts:
        return
    if not 1 <= spec.experts_per_token <= spec.num_experts:
        raise ModelError(
            f"experts_per_token={spec.experts_per_token} must be from 1 to "
            f"num_experts={spec.num_experts}"
        )
    _check_expert_groups(spec)
    for field in ("expert_ffn_hidden_size", "expert_every"):
        if getattr(spec, field) < 1:
            raise ModelError(
                f"{field}={getattr(spec, field)} must be at least 1 "
                f"with num_experts={spec.num_experts}"
            )
    if spec.post_norm:
        raise ModelError(f"num_experts={spec.num_experts}: experts need norms before each block")
    if not any(map(spec.has_experts, range(spec.num_layers))):
        raise ModelError(
            f"dense_layers={spec.dense_layers} and expert_every={spec.expert_every} leave none of "
            f"{spec.num_layers} layers with experts; use num_experts=0 for a dense model"
        )


def _check_latent(spec: TransformerSpec) -> None:
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
