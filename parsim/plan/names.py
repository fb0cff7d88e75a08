"""What a plan's fields may name: schedules, exchanges of context ranks, fates of activations."""

from __future__ import annotations

from enum import IntEnum

_CHUNKED = ("interleaved_1f1b", "looped_bfs", "hanayo")
_WHOLE = ("naive", "gpipe", "1f1b", "eager_1f1b", "bpipe", *_CHUNKED)
_SPLIT = ("zb_h1", "zb_h2", "zb_1p", "zb_2p", "zb_auto")
_V_SHAPED = ("zb_v", "v_half", "v_min", "dualpipe_v")

TWO_WAY = ("chimera", "dualpipe")
"""Schedules with two copies of the model in opposite directions."""

SCHEDULE_NAMES = (*_WHOLE, *_SPLIT, *_V_SHAPED, *TWO_WAY)
"""Schedules a plan may name; `parsim.schedule.SCHEDULES` holds their generators."""

_RARE = ("eager_1f1b", "bpipe", "looped_bfs", "hanayo", "dualpipe_v", *TWO_WAY)

BALANCED = frozenset({"bpipe"})
"""Schedules that keep activations of some ranks on others."""

USUAL = tuple(name for name in SCHEDULE_NAMES if name not in _RARE)
"""Schedules that a search looks at where it is not told which."""

CHUNKED = frozenset(_CHUNKED)
"""Schedules with any number of chunks a rank above one."""

WHOLE = frozenset({*_WHOLE, "chimera"})
"""Schedules whose backward is one action."""

V_SHAPED = frozenset(_V_SHAPED)
"""Schedules with two chunks a rank, placed as a V."""

FOLDED = V_SHAPED.union({"hanayo"})
"""Schedules whose stages go down the ranks and back up, once or more often."""

SPLIT = V_SHAPED.union(_SPLIT, {"dualpipe"})
"""Schedules whose backward is in two actions, I and W."""

WITHOUT_FLUSH = ("pipedream", "pipedream_vertical_sync", "pipedream_2bw")
"""Schedules that update between micro-batches, and keep old weights for those on their way."""

AUTO = "auto"
"""The schedule that is ordered for the plan itself, by its seconds and bytes (`sim/orders`)."""


class CpCommType(IntEnum):
    """What context-parallel ranks exchange in a layer's attention, as Megatron-Core names it.

    DEFAULT is what the software does. P2P sends blocks of keys and values round a ring (ring
    attention, arXiv:2310.01889). ALL_GATHER gives every rank all keys and values (Llama 3,
    arXiv:2407.21783, 3.3.2). A2A gives a rank some heads of the whole sequence, and brings
    their outputs back (DeepSpeed-Ulysses, arXiv:2309.14509).
    """

    DEFAULT = 0
    P2P = 1
    ALL_GATHER = 2
    A2A = 3

    def __str__(self) -> str:
        """How scenarios and frameworks write it."""
        return self.name.lower()


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
    "attn_proj",
)
"""Parts of a layer that a plan can name to be computed again."""

REGION_MODULES = ("attn_proj",)
"""Modules that only a compiler repeats, as a part of one region (`Software.recompute_region`)."""

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
