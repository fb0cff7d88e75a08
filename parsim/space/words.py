"""Axes and their values in words: a plan's label, what a search looks at."""

from __future__ import annotations

from typing import Any

from parsim.cost.step.cuts import cut_words
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.space import FEWEST, Between
from parsim.space.axes import AXES, SETTINGS
from parsim.space.axis import SpaceAxis


def plan_label(space: PlanSpace, plan: Plan) -> str:
    """A plan's label, the rare values of settings that a space varies, a cut that is not even."""
    words = [SETTINGS[name].word(plan) for name in space.varied]
    if plan.stage_layers and plan.node_order is None:
        words.append(f"cut {cut_words(plan.stage_layers)}")
    return " ".join([plan.label(), *(word for word in words if word)])


def looked_at(space: PlanSpace) -> dict[str, str]:
    """The values of each axis that a search of a space looks at, in words."""
    return {axis.name: _words(space, axis) for axis in AXES}


def _words(space: PlanSpace, axis: SpaceAxis) -> str:
    values = space.allowed(axis.name)
    if values is not None:
        return axis_words(values)
    return value_word(getattr(space.common, axis.name)) if axis.setting else axis.unsaid


def axis_words(values: tuple[Any, ...] | Between) -> str:
    """Allowed values of an axis as a person writes them."""
    return str(values) if isinstance(values, Between) else ", ".join(map(value_word, values))


def value_word(value: object) -> str:
    """One value of an axis as a person writes it."""
    if isinstance(value, Recompute):
        return value.name.lower()
    if isinstance(value, tuple):
        return "-".join(map(str, value)) or "none"
    if value == FEWEST:
        return "the fewest that fit"
    return str(value).lower() if isinstance(value, bool) else str(value)
