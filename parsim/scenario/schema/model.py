"""Keys of the model block."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from parsim.scenario.schema.values import (
    UNSET,
    ActivationName,
    Amount,
    Block,
    Count,
    FamilyName,
    Flag,
    HeadName,
    ParallelName,
    Positive,
    RopeScalingName,
    ScoringName,
    Text,
    Time,
)


class ModelBlock(Block):
    """`name` of the catalog or of a Hugging Face config.json, or `family` with all sizes inline.

    `config` is a config.json too, with a `name` of one's own beside it. `file` is a graph of
    operations (`parsim profile` writes one); `image_size` and `num_classes` are those of networks
    that take images.

    The other fields are those of TransformerSpec and override what name or config say.
    """

    name: Text = UNSET
    config: Text = UNSET
    file: Text = UNSET
    image_size: Count = UNSET
    num_classes: Count = UNSET
    family: FamilyName = UNSET
    num_layers: Count = UNSET
    hidden_size: Count = UNSET
    num_attention_heads: Count = UNSET
    num_key_value_heads: Count = UNSET
    head_dim: Count = UNSET
    ffn_hidden_size: Count = UNSET
    vocab_size: Count = UNSET
    seq_len: Count = UNSET
    padded_vocab_size: Count | None = UNSET
    positions: Amount = UNSET
    token_types: Amount = UNSET
    rope: Flag = UNSET
    rope_theta: Positive = UNSET
    rope_scaling: RopeScalingName = UNSET
    rope_factor: Positive = UNSET
    rope_original_positions: Amount = UNSET
    rope_low_freq_factor: Positive = UNSET
    rope_high_freq_factor: Positive = UNSET
    rope_attention_factor: Time = UNSET
    rope_interleaved: Flag = UNSET
    window_rope_theta: Time = UNSET
    unrotated_every: Amount = UNSET
    alibi: Flag = UNSET
    first_position: Amount = UNSET
    norm_epsilon: Positive = UNSET
    rms_norm: Flag = UNSET
    offset_norms: Flag = UNSET
    gated_mlp: Flag = UNSET
    activation: ActivationName = UNSET
    qkv_bias: Flag = UNSET
    projection_bias: Flag = UNSET
    mlp_bias: Flag = UNSET
    post_norm: Flag = UNSET
    embedding_norm: Flag = UNSET
    parallel_block: ParallelName = UNSET
    embedding_scale: Positive = UNSET
    residual_scale: Positive = UNSET
    attention_scale: Time = UNSET
    logit_scale: Positive = UNSET
    attention_cap: Time = UNSET
    logit_cap: Time = UNSET
    tied_embeddings: Flag = UNSET
    causal: Flag = UNSET
    pooler: Flag = UNSET
    head: HeadName = UNSET
    fused_attention: Flag = UNSET
    dropout: Flag = UNSET
    qk_norm: Flag = UNSET
    norms_after: Flag = UNSET
    window: Amount = UNSET
    full_every: Amount = UNSET
    num_experts: Amount = UNSET
    experts_per_token: Amount = UNSET
    expert_groups: Count = UNSET
    groups_per_token: Count = UNSET
    expert_ffn_hidden_size: Amount = UNSET
    shared_expert_ffn_hidden_size: Amount = UNSET
    dense_layers: Amount = UNSET
    expert_every: Count = UNSET
    norm_topk_prob: Flag = UNSET
    router_aux_loss_coef: Time = UNSET
    router_scoring: ScoringName = UNSET
    router_bias: Flag = UNSET
    routed_scaling_factor: Time = UNSET
    predicted_tokens: Amount = UNSET
    q_lora_rank: Amount = UNSET
    kv_lora_rank: Amount = UNSET
    rope_head_dim: Amount = UNSET
    value_head_dim: Amount = UNSET
    layer_pattern: Annotated[str, Field(strict=True)] = UNSET
    mamba_heads: Amount = UNSET
    mamba_head_dim: Amount = UNSET
    mamba_state: Amount = UNSET
    mamba_groups: Count = UNSET
    sample_length: Amount = UNSET
    lora_rank: Amount = UNSET
    lora_targets: tuple[Text, ...] = UNSET
    modules_to_save: tuple[Text, ...] = UNSET
