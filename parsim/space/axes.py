"""The axes of a space of plans: what each is, which values it may have, what it depends on.

A new axis is one record in `AXES`. Fields of a plan that a table of plans has no column for are
`Setting`s: a space that lists several values of them holds every plan once for each combination in
which it is another plan (`planner/space/options.py`), and all that follows is as for one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from parsim.arrays import Flags
from parsim.cost.job import Job
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.plan.space import Between, chosen
from parsim.space.axis import Setting, SpaceAxis, Values
from parsim.space.effects import (
    everywhere,
    for_all,
    gathered,
    has_experts,
    in_context,
    kept,
    order_word,
    ordered,
    pipelined,
    reduced,
    scattered,
)
from parsim.space.legal_values import (
    both,
    every_schedule,
    exchanges,
    expert_slices,
    fewest_layers,
    hidden,
    inside_a_node,
    quick_schedules,
    rank_orders,
    recomputed_modules,
    recomputed_regions,
)


def _switch(
    name: str,
    what: str,
    *,
    differs: Callable[[PlanTable], Flags],
    word: Callable[[Plan], str] = lambda plan: "",
    rules: Callable[[Job], bool] = lambda job: False,
    presets: Mapping[str, Values] | None = None,
) -> SpaceAxis:
    """An axis of what a plan does or does not do."""
    setting = Setting(every=both, differs=differs, word=word, rules=rules)
    return SpaceAxis(name=name, what=what, kind="flag", presets=presets or {}, setting=setting)


AXES: Final[tuple[SpaceAxis, ...]] = (
    SpaceAxis(
        name="tp", what="tensor-parallel ranks", kind="count", presets={"quick": inside_a_node}
    ),
    SpaceAxis(name="pp", what="pipeline ranks", kind="count"),
    SpaceAxis(name="dp", what="replicas, dp_replicate x dp_shard", kind="count"),
    SpaceAxis(
        name="dp_shard",
        what="replicas that share states where ZeRO does",
        kind="count",
        unsaid="all replicas",
        presets={"full": lambda job: Between()},
    ),
    SpaceAxis(
        name="cp", what="context-parallel ranks", kind="count", presets={"quick": lambda job: (1,)}
    ),
    SpaceAxis(
        name="cp_comm_type",
        what="what context-parallel ranks exchange: p2p, all_gather, a2a",
        kind="exchange",
        unsaid="the stack's",
        presets={"full": exchanges},
        setting=Setting(
            every=exchanges,
            differs=in_context,
            rules=for_all,
            layers=True,
        ),
    ),
    SpaceAxis(name="ep", what="ranks that share out a layer's experts", kind="count"),
    SpaceAxis(
        name="etp",
        what="ranks that split each expert",
        kind="count",
        presets={"full": expert_slices},
        setting=Setting(
            every=expert_slices,
            differs=everywhere,
            rules=for_all,
            layers=True,
        ),
    ),
    SpaceAxis(
        name="microbatch_size",
        what="sequences of a micro-batch",
        kind="count",
        presets={"quick": lambda job: (1, 2, 4)},
    ),
    SpaceAxis(
        name="v",
        what="chunks (virtual stages) of a pipeline rank",
        kind="count",
        presets={"quick": lambda job: Between(most=4)},
    ),
    SpaceAxis(
        name="schedule",
        what="pipeline schedules",
        kind="schedule",
        unsaid="the stack's",
        presets={"quick": quick_schedules, "full": every_schedule},
    ),
    SpaceAxis(
        name="zero_stage",
        what="what replicas share: 1 optimizer states, 2 gradients, 3 parameters",
        kind="stage",
        unsaid="the stack's",
        presets={"quick": lambda job: Between(excluded=(2,))},
    ),
    SpaceAxis(name="recompute", what="none, selective, full", kind="recompute"),
    SpaceAxis(
        name="recompute_modules",
        what="parts of layers that are computed again where recompute is none",
        kind="modules",
        presets={"standard": recomputed_regions, "full": recomputed_modules},
        setting=Setting(
            every=recomputed_modules,
            differs=kept,
            layers=True,
            plain=(),
        ),
    ),
    SpaceAxis(
        name="recompute_layers",
        what="layers of each stage that are computed again as a whole, or the fewest that fit",
        kind="repeated",
        unsaid="none",
        presets={"full": fewest_layers},
    ),
    SpaceAxis(
        name="offload_layers",
        what="layers of each stage with their activations in the host's memory",
        kind="layers",
        unsaid="none",
        presets={"full": lambda job: Between()},
    ),
    SpaceAxis(name="sequence_parallel", what="tokens split outside products", kind="flag"),
    SpaceAxis(
        name="rank_order",
        what="which axes are outermost, such as dp-pp-cp-tp",
        kind="order",
        presets={"full": rank_orders},
        setting=Setting(
            every=rank_orders,
            differs=ordered,
            word=order_word,
            rules=has_experts,
            layers=True,
        ),
    ),
    _switch(
        "overlap_grad_reduce",
        "gradients are reduced beside the last backwards",
        presets={"full": both},
        differs=reduced,
        word=lambda plan: "" if plan.overlap_grad_reduce else "no-reduce-overlap",
    ),
    _switch(
        "overlap_param_gather",
        "sharded parameters are gathered beside compute",
        presets={"full": hidden},
        differs=gathered,
        word=lambda plan: "" if plan.overlap_param_gather else "no-gather-overlap",
    ),
    _switch(
        "overlap_p2p",
        "messages between stages travel beside compute",
        differs=pipelined,
        word=lambda plan: "p2p-overlap" if plan.overlap_p2p else "",
    ),
    _switch(
        "scatter_p2p",
        "each tensor-parallel rank sends its share of a message between stages",
        differs=scattered,
        word=lambda plan: "scatter" if plan.scatter_p2p else "",
    ),
    _switch(
        "optimizer_offload",
        "optimizer states are kept and updated in the host's memory",
        differs=everywhere,
        rules=for_all,
    ),
)
"""All axes, in the order in which they are listed."""

BY_NAME: Final = {axis.name: axis for axis in AXES}

SETTINGS: Final[dict[str, Setting]] = {
    axis.name: axis.setting for axis in AXES if axis.setting is not None
}
"""The axes whose values all rows of a table share."""


def setting_values(job: Job, space: PlanSpace, name: str) -> tuple[Any, ...]:
    """Values of a setting that a search tries, what all plans share first where it is among them.

    A range holds those of the legal values that lie in it; values that are listed may not be legal,
    and are told so.
    """
    shared = getattr(space.common, name)
    asked = space.varied.get(name)
    if asked is None:
        return (shared,)
    values = tuple(dict.fromkeys(chosen(asked, SETTINGS[name].every(job))))
    return (shared, *(v for v in values if v != shared)) if shared in values else values
