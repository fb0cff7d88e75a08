"""The record of an axis of a space, of a field that all rows share, and what is read for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from parsim.arrays import Flags
from parsim.cost.job import Job
from parsim.cost.layer.kept.recomputed_modules import modules_of
from parsim.errors import InputError, shown
from parsim.plan import AXES, Plan, PlanTable
from parsim.plan.names import RECOMPUTE_MODULES, REGION_MODULES

Kind = Literal[
    "count",
    "stage",
    "layers",
    "repeated",
    "flag",
    "schedule",
    "recompute",
    "order",
    "modules",
    "exchange",
]
"""How the values of an axis are written: see `parsim/scenario/schema/values.py`."""

Values = Callable[[Job], Any]
"""Values that a preset has of an axis, for a job: a tuple, `Between`, or None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How plans differ by a field that a table has no column for.

    `every` are the values that are legal for a job, `differs` (B,) the rows of a table that another
    value than the first makes another plan. `rules` says whether a rule of legality reads the
    field for a job, `layers` whether the costs of layers depend on it, `word` what a plan with a
    rare value is called, "" where its label says it. Where other values save memory at the price of
    time, `plain` is the one that saves none; `differs` reads no other field then than
    `PlanTable.recompute`.
    """

    every: Callable[[Job], tuple[Any, ...]]
    differs: Callable[[PlanTable], Flags]
    word: Callable[[Plan], str] = lambda plan: ""
    rules: Callable[[Job], bool] = lambda job: False
    layers: bool = False
    plain: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceAxis:
    """One axis: its key in a search block, what it is, how values are written, its presets.

    A preset that is not named has what a space has without the key: `unsaid`, which is every legal
    value where nothing else is said; of a `Setting` the value that all plans share.
    """

    name: str
    what: str
    kind: Kind
    unsaid: str = "every legal one"
    presets: Mapping[str, Values] = field(default_factory=dict)
    setting: Setting | None = None


_SHORT = {"dp": ("dp_replicate", "dp_shard")}


def read_order(text: str) -> tuple[str, ...]:
    """Read `pp-dp-cp-tp`, where `dp` is short for dp_replicate-dp_shard.

    Raises:
        InputError: an axis is missing, named twice or unknown.
    """
    parts = [part.strip().lower() for part in text.split("-")]
    order = tuple(axis for part in parts for axis in _SHORT.get(part, (part,)))
    if sorted(order) != sorted(AXES):
        raise InputError(
            f"rank_order={shown(text)} must name each of {', '.join(AXES)} once, outermost first, "
            f"e.g. pp-dp-cp-tp (dp is short for dp_replicate-dp_shard)"
        )
    return order


WHOLE = ("core_attn", "moe", *REGION_MODULES)
"""Modules that are no choice beside the others: one is selective recomputation, one holds shared
experts and the activation of routed ones, and some only a compiler's region repeats."""


REGIONS = (("core_attn", "layernorm", "mlp"), ("core_attn", "layernorm", "mlp", "attn_proj"))
"""What a compiler's region repeats that keeps the products of attention, all or but the last one:
MaxText's policies `save_dot_except_mlp` and `save_qkv_proj`."""


def module_sets(job: Job) -> tuple[tuple[str, ...], ...]:
    """Nothing, each module that the model's layers have, and all cheap ones of them together.

    Cheap are norms, the projections up of latent attention and the activation of experts: what
    Megatron-Core's documentation names to save memory for little time. Of a stack that repeats a
    compiler's region: nothing, and its usual regions.
    """
    model = job.model
    has = {
        name for layer in model.kinds for op in layer.operators for name in modules_of(layer, op)
    }
    if job.software.recompute_region:
        return ((), *(region for region in REGIONS if has.issuperset(region)))
    if model.experts is not None:
        has.add("moe_act")
    single = [name for name in RECOMPUTE_MODULES if name in has and name not in WHOLE]
    cheap = tuple(name for name in single if name not in ("mlp", "shared_experts"))
    sets = [(), *((name,) for name in single), cheap]
    return tuple(dict.fromkeys(sets))
