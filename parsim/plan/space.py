"""A space of plans to search: allowed values per axis and what all plans share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from parsim.plan.names import Recompute
from parsim.plan.record import Plan
from parsim.plan.strategies import Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Whole numbers from `least` to `most`, both among them, but for `excluded` ones."""

    least: int = 0
    most: int | None = None
    excluded: tuple[int, ...] = ()

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int) or value in self.excluded:
            return False
        return self.least <= value and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        """How a scenario writes it."""
        ends = f"{self.least}..{self.most}" if self.most is not None else f">= {self.least}"
        if self.least == 0:
            ends = f"<= {self.most}"
        words = [ends] if self.least > 0 or self.most is not None else []
        words += [f"not {', '.join(map(str, self.excluded))}"] if self.excluded else []
        return " and ".join(words) or "any"


FEWEST = -1
"""In place of a number of recomputed layers: the fewest with which the plan fits."""

FEWEST_WORD = "fewest"
"""How people write it."""

Axis = tuple[int, ...] | Between | None
"""Allowed values of an axis: those listed, those of a range, or every legal one."""


def chosen(axis: Axis, legal: Iterable[int]) -> tuple[int, ...]:
    """The values of an axis that a search tries; those listed may not be legal, and are told so."""
    if axis is None:
        return tuple(legal)
    return tuple(value for value in legal if value in axis) if isinstance(axis, Between) else axis


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSpace:
    """Values that a search may try; None means every legal value.

    Of schedules and ZeRO stages that is every one of the stack.

    The number of micro-batches follows from the global batch; `dp` is the product of dp_replicate
    and dp_shard, and `dp_shard` None shards over all of them, values also over a part (HSDP).
    `offload_layers` None moves nothing to the host, any number (`Between()`) means none, half and
    all of a stage's layers. `recompute_layers` None recomputes no layers beside those that
    `recompute` does, `FEWEST` so many that the plan fits. `common` gives the fields that are not
    searched (precision, bucket size), and `varied` the values of those which are though a table of
    plans has no column for them (`parsim/space/axes.py`): overlap switches, rank order. Where
    `common` has a schedule of the user's own (`actions`), all plans have that, with its pp, v and
    num_microbatches. `memory_margin` is the share of the device's memory, beside context and
    allocator's reserve, that a plan must leave free to fit; None: what its predicted peak may be
    wrong by. `memory_cap` are bytes that no plan's peak may exceed, `max_bubble` is the largest
    share of the pipeline phase that may idle. `unequal_stages` also looks for stages with replicas
    and tensor-parallel degrees of their own (`planner/unequal/`). `strategies` are data-parallel
    strategies that are looked at beside all-reduced gradients; where the space is `synchronous`
    only those are ranked whose steps are those of the whole batch.
    """

    global_batch_size: int
    tp: Axis = None
    pp: Axis = None
    dp: Axis = None
    cp: Axis = None
    ep: Axis = None
    microbatch_size: Axis = None
    v: Axis = None
    schedule: tuple[str, ...] | None = None
    zero_stage: Axis = None
    recompute: tuple[Recompute, ...] = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
    recompute_layers: Axis = None
    sequence_parallel: tuple[bool, ...] = (False, True)
    offload_layers: Axis = None
    dp_shard: Axis = None
    memory_margin: float | None = None
    memory_cap: float | None = None
    max_bubble: float | None = None
    unequal_stages: bool = False
    common: Plan = field(default_factory=Plan)
    strategies: tuple[Strategy, ...] = ()
    synchronous: bool = True
    varied: Mapping[str, tuple[Any, ...] | Between] = field(default_factory=dict)

    def allowed(self, name: str) -> tuple[Any, ...] | Between | None:
        """The values of an axis by its name; None where the space does not say any."""
        values: tuple[Any, ...] | Between | None
        values = self.varied.get(name) if name not in _FIELDS else getattr(self, name)
        return values

    def with_axes(self, values: Mapping[str, Any]) -> PlanSpace:
        """The space with other values of axes, by their names."""
        fields = {name: value for name, value in values.items() if name in _FIELDS}
        varied = {name: value for name, value in values.items() if name not in _FIELDS}
        return replace(self, **fields, varied={**self.varied, **varied})


_FIELDS = frozenset(f.name for f in fields(PlanSpace))
