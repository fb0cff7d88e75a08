"""Models so small that a plan takes a fraction of a second, one for each family."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parsim.model.transformer import TransformerSpec

GPT = TransformerSpec(
    name="tiny-gpt",
    num_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=8,
    ffn_hidden_size=64,
    vocab_size=60,
    padded_vocab_size=64,
    seq_len=16,
    positions=24,
)
BERT = replace(
    GPT, name="tiny-bert", post_norm=True, token_types=2, causal=False, pooler=True, head="mlm"
)
LLAMA = replace(
    GPT,
    name="tiny-llama",
    positions=0,
    num_key_value_heads=2,
    rope=True,
    rms_norm=True,
    gated_mlp=True,
    qkv_bias=False,
    projection_bias=False,
    mlp_bias=False,
    tied_embeddings=False,
)
MIXTRAL = replace(
    LLAMA,
    name="tiny-mixtral",
    num_experts=4,
    experts_per_token=2,
    expert_ffn_hidden_size=24,
    router_aux_loss_coef=0.5,
)
LATENT: Any = {
    "num_key_value_heads": 4,
    "head_dim": 12,
    "q_lora_rank": 14,
    "kv_lora_rank": 10,
    "rope_head_dim": 4,
    "value_head_dim": 6,
}
# sigmoid scores, a bias for the choice, groups of experts, a shared expert, one plain layer
DEEPSEEK = replace(
    LLAMA,
    name="tiny-deepseek",
    **LATENT,
    num_layers=3,
    num_experts=8,
    experts_per_token=2,
    expert_groups=4,
    groups_per_token=2,
    expert_ffn_hidden_size=12,
    shared_expert_ffn_hidden_size=24,
    dense_layers=1,
    router_scoring="sigmoid",
    router_bias=True,
    routed_scaling_factor=2.5,
)
GEMMA = replace(
    LLAMA,
    name="tiny-gemma",
    tied_embeddings=True,
    offset_norms=True,
    activation="gelu_tanh",
    window=5,
    full_every=2,
)
SPECS = {
    "gpt": GPT,
    "llama": LLAMA,
    "latent": replace(LLAMA, name="tiny-latent", **LATENT),
    "latent, queries whole": replace(LLAMA, name="tiny-lite", **{**LATENT, "q_lora_rank": 0}),
    "deepseek": DEEPSEEK,
    "deepseek v2": replace(
        DEEPSEEK,
        name="tiny-deepseek-2",
        router_scoring="softmax",
        router_bias=False,
        norm_topk_prob=False,
        q_lora_rank=0,
        routed_scaling_factor=4.0,
    ),
    "windowed": replace(LLAMA, name="tiny-windowed", window=5),
    # scales, caps, norms that add 1 and stand on both sides
    "gemma": replace(
        GEMMA,
        norms_after=True,
        embedding_scale=32**0.5,
        attention_scale=0.5,
        attention_cap=4.0,
        logit_cap=0.2,
    ),
    # norms of heads, two bases of rotary positions
    "gemma 3": replace(GEMMA, name="tiny-gemma-3", qk_norm=True, window_rope_theta=100.0),
    "bloom": replace(GPT, name="tiny-bloom", positions=0, alibi=True, embedding_norm=True),
    # part of each head turns, in neighbouring pairs, and in one of two layers only
    "neox": replace(
        GPT,
        name="tiny-neox",
        positions=0,
        rope=True,
        rope_head_dim=4,
        rope_interleaved=True,
        unrotated_every=2,
        parallel_block="own_norms",
        activation="gelu",
        residual_scale=0.5,
        logit_scale=2.0,
    ),
    "shared norm": replace(
        GPT,
        name="tiny-shared-norm",
        first_position=2,
        parallel_block="shared_norm",
        activation="relu",
        embedding_scale=3.0,
    ),
    "adapters": replace(LLAMA, name="tiny-adapters", lora_rank=4),
    "adapters, ends": replace(
        LLAMA, name="tiny-saved", lora_rank=4, modules_to_save=("embed_tokens", "lm_head")
    ),
    "adapters, tied ends": replace(
        GPT, name="tiny-saved-gpt", lora_rank=3, modules_to_save=("embed_tokens", "lm_head")
    ),
    "adapters, gpt": replace(GPT, name="tiny-adapted-gpt", lora_rank=3),
    "adapters of some": replace(
        LLAMA, name="tiny-partly", lora_rank=4, lora_targets=("linear_proj", "linear_fc1")
    ),
    "adapters, experts": replace(MIXTRAL, name="tiny-adapted-mixtral", lora_rank=4),
    "llama-mha": replace(LLAMA, name="tiny-llama-mha", num_key_value_heads=4),
    "four layers": replace(GPT, name="tiny-deep", num_layers=4),
    "four llama layers": replace(LLAMA, name="tiny-deep-llama", num_layers=4),
    "one head": replace(GPT, name="tiny-multi-query", num_key_value_heads=1),
    "llama, one head": replace(LLAMA, name="tiny-llama-mqa", num_key_value_heads=1, qk_norm=True),
    "bert": BERT,
    "mixtral": MIXTRAL,
    "qwen3": replace(MIXTRAL, name="tiny-qwen3", qk_norm=True, num_experts=8, experts_per_token=3),
    # biases, a shared expert, one layer without experts, a tied table
    "experts with all": replace(
        GPT,
        name="tiny-experts",
        num_experts=4,
        experts_per_token=2,
        expert_ffn_hidden_size=24,
        shared_expert_ffn_hidden_size=16,
        dense_layers=1,
    ),
    # no width is that of another one's half, and logits outweigh all other activations
    "large vocabulary": replace(
        GPT, name="tiny-wide", ffn_hidden_size=96, vocab_size=8000, padded_vocab_size=8192
    ),
}
