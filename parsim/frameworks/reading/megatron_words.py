"""Words of Megatron-LM's command line for what a plan has, and their usual values."""

from __future__ import annotations

from collections.abc import Mapping

USUAL: Mapping[str, tuple[str, ...]] = {
    "--transformer-impl": ("transformer_engine", "local"),
    "--optimizer": ("adam",),
}
"""Flags that say what is taken in any case, with these words behind them."""

WORDS: Mapping[str, str] = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "cp": "--context-parallel-size",
    "ep": "--expert-model-parallel-size",
    "etp": "--expert-tensor-parallel-size",
    "stage_layers": "--pipeline-model-parallel-layout",
    "v": "--num-virtual-stages-per-pipeline-rank",
    "microbatch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size",
    "dp_replicate": "--num-distributed-optimizer-instances",
    "num_layers": "--num-layers",
    "hidden_size": "--hidden-size",
    "ffn_hidden_size": "--ffn-hidden-size",
    "num_attention_heads": "--num-attention-heads",
    "num_key_value_heads": "--num-query-groups",
    "head_dim": "--kv-channels",
    "seq_len": "--seq-length",
    "positions": "--max-position-embeddings",
    "padded_vocab_size": "--padded-vocab-size",
    "num_experts": "--num-experts",
    "experts_per_token": "--moe-router-topk",
    "expert_groups": "--moe-router-num-groups",
    "groups_per_token": "--moe-router-group-topk",
    "recompute_modules": "--recompute-modules",
    "recompute_layers": "--recompute-num-layers",
    "offload_layers": "--cpu-offloading-num-layers",
    "offload_modules": "--offload-modules",
    "cp_comm_type": "--cp-comm-type",
}
"""Flags by the keys of a scenario that errors name."""
