"""Settings of a space: fields that a table has no column for, and the plans that they make others.

overlap_grad_reduce  true | false      the first combination has every legal plan; another one
rank_order           pp first | dp     those rows that all of its other values make other plans
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from parsim.arrays import Flags
from parsim.cost.job import Job
from parsim.plan import PlanSpace, PlanTable
from parsim.space.axes import SETTINGS, setting_values

Values = Mapping[str, Any]
"""One value of each setting that a space varies."""


def combinations(job: Job, space: PlanSpace) -> Iterator[Values]:
    """Each combination of the settings' values, that which plans share by itself first."""
    names = tuple(space.varied)
    for values in product(*(setting_values(job, space, name) for name in names)):
        yield dict(zip(names, values, strict=True))


def ruled(job: Job, values: Values) -> tuple[Any, ...]:
    """The values that decide which plans are legal: of equal ones one enumeration is enough."""
    every = job.software.executor  # which refuses plans by any of their fields
    return tuple(value for name, value in values.items() if every or SETTINGS[name].rules(job))


def with_setting(space: PlanSpace, values: Values) -> PlanSpace:
    """The space whose plans all share these values."""
    return replace(space, common=replace(space.common, **values), varied={})


def other_plans(table: PlanTable, first: Values, values: Values) -> Flags:
    """The rows that are other plans with these values than with any combination before."""
    rows = np.ones(len(table), dtype=bool)
    for name, value in values.items():
        if value != first[name]:
            rows &= SETTINGS[name].differs(table)
    return rows


def layer_settings(table: PlanTable) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number of each row, (B,): rows of one number have layers that cost the same."""
    idle = [name for name, setting in SETTINGS.items() if not setting.layers]
    first = table.settings[0]
    same = {name: getattr(first, name) for name in (*idle, "stage_layers")}
    alike = [replace(plan, **same) for plan in table.settings]
    numbers = np.array([alike.index(plan) for plan in alike])
    return np.asarray(numbers[table.setting])
