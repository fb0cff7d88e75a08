"""Options of whole layers that cannot stand together: norms, scales, packed samples, patterns."""

from __future__ import annotations

from parsim.errors import ModelError, shown
from parsim.model.spec import TransformerSpec


def check_order(spec: TransformerSpec) -> None:
    """Norms and parts of a layer that cannot stand as the spec has them."""
    if spec.norms_after and (spec.post_norm or spec.layer_pattern):
        beside = "post_norm" if spec.post_norm else "layer_pattern"
        raise ModelError(f"norms_after=true cannot stand beside {beside}")
    if spec.parallel_block != "none" and (spec.post_norm or spec.norms_after or spec.num_experts):
        raise ModelError(
            f"parallel_block={spec.parallel_block} cannot stand beside post_norm, norms_after or "
            f"num_experts"
        )


def check_scales(spec: TransformerSpec) -> None:
    """Factors that must be positive, and scores of attention that not every kernel can change."""
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


def check_samples(spec: TransformerSpec) -> None:
    """Packed samples are parts of a sequence; what is not attention would have to know of them."""
    if not 0 <= spec.sample_length <= spec.seq_len:
        raise ModelError(
            f"sample_length={spec.sample_length} must be from 0 (one sample) to "
            f"seq_len={spec.seq_len}, which samples are packed to"
        )
    if spec.sample_length and spec.kv_lora_rank:
        raise ModelError("sample_length beside kv_lora_rank: packed latent attention is not priced")


def check_pattern(spec: TransformerSpec) -> None:
    """A pattern of mixed layers names each layer by a letter that there is."""
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
