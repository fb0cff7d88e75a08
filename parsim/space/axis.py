"""The record of an axis of a space of plans, and of a field that all rows of a table share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from parsim.arrays import Flags
from parsim.cost.job import Job
from parsim.plan import Plan, PlanTable

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
    rare value is called, "" where its label says it.
    """

    every: Callable[[Job], tuple[Any, ...]]
    differs: Callable[[PlanTable], Flags]
    word: Callable[[Plan], str] = lambda plan: ""
    rules: Callable[[Job], bool] = lambda job: False
    layers: bool = False


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
