"""A space of plans in words: presets, a plan's label, what a search looks at."""

from __future__ import annotations

from typing import Any

from parsim.cost.job import Job
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
    if value is None:
        return "default"
    if value == FEWEST:
        return "the fewest that fit"
    return str(value).lower() if isinstance(value, bool) else str(value)


def preset(name: str, job: Job) -> dict[str, Any]:
    """Values of a space's axes, by name; those that the preset leaves as they are not among them.

    `standard` is every legal value with the stack's schedules, and with the modules that its
    compiler repeats as one region, where it does. `quick` keeps tensor
    parallelism inside a node, has micro-batches of 1, 2 and 4, at most 4 virtual stages, no ZeRO-2
    and no context parallelism. `full` adds shards over a part of the replicas (HSDP), activations
    of half and of all layers of a stage in the host's memory, as few recomputed layers as each plan
    needs to fit, the schedules that the stack lacks
    but parsim knows, unless the stack is the executor, which runs what it runs, and every value
    of the settings (`axes.py`).
    """
    values = {axis.name: axis.presets[name](job) for axis in AXES if name in axis.presets}
    return {name: value for name, value in values.items() if value is not None}
