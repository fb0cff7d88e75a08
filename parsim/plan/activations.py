"""What may become of activations between forward and backward: kept, computed again, moved."""

from __future__ import annotations

from enum import IntEnum


class Recompute(IntEnum):
    """Which activations are computed again in backward instead of being kept.

    SELECTIVE repeats the attention core (Korthikanti et al. 2022), FULL repeats each layer.
    """

    NONE = 0
    SELECTIVE = 1
    FULL = 2


RECOMPUTE_MODULES = (
    "core_attn",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "shared_experts",
    "moe_act",
    "moe",
)
"""Parts of a layer that a plan can name to be computed again."""

OFFLOAD_MODULES = (
    "attn_norm",
    "qkv_linear",
    "core_attn",
    "attn_proj",
    "mlp_norm",
    "mlp",
    "expert_fc1",
    "moe_act",
    "fused_group_mlp",
)
"""Parts of a layer whose activations a plan can name to be kept in the host's memory."""
