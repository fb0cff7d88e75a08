"""Step times of many measured runs at once, under changed constants or without one effect.

Rows of one job (model, cluster, software) are priced in one numpy call and simulated shape by
shape; schedules are compiled once. This is what a fit repeats a few hundred times: step times
alone, by the same functions and so with the same results as `simulate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from parsim.arrays import Array, Index
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.fitting.constants.effects import NOTHING, Effect
from parsim.plan import Plan, PlanTable
from parsim.plan.table import COLUMNS
from parsim.sim.recurrence.evaluate import pipeline
from parsim.sim.recurrence.maxplus import step_end
from parsim.sim.step.compiled_schedule import CompiledSchedule, compiled_schedule
from parsim.sim.step.schedule_costs import on_schedule
from parsim.validation.step.case import Case


def shapes(table: PlanTable) -> Iterator[tuple[tuple[str, int, int, int], NDArray[np.int64]]]:
    """Groups of rows with equal (schedule, pp, num_microbatches, v), in a fixed order.

    Without a pipeline every schedule is the same loop over micro-batches, so pp = 1 rows are
    evaluated as 1F1B whatever they are called.
    """
    ordered = np.argsort(np.argsort(table.schedules))  # places in the alphabet
    code, names = ordered[table.schedule], sorted(table.schedules)
    numbers = np.stack([code, table.pp, table.num_microbatches, table.v], axis=1)
    distinct, back = np.unique(numbers, axis=0, return_inverse=True)
    order = np.argsort(back.reshape(-1), kind="stable")
    bounds = np.searchsorted(back.reshape(-1)[order], np.arange(len(distinct) + 1))
    for i, (name, pp, m, v) in enumerate(distinct):
        schedule = names[name] if pp > 1 else "1f1b"
        yield (schedule, int(pp), int(m), int(v)), order[bounds[i] : bounds[i + 1]]


_SHARED = tuple(f.name for f in fields(Plan) if f.name not in (*COLUMNS, "schedule"))
"""Fields in which all plans of one table must agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Plans of one job; `indices` says which cases of the list they are.

    `parts` are the plans of one shape each: compiled schedule, their rows here, their table.
    """

    job: Job
    indices: Index
    table: PlanTable
    parts: tuple[tuple[CompiledSchedule, Index, PlanTable], ...]

    def step_times(self, job: Job, effect: Effect = NOTHING) -> Array:
        """Seconds of each plan's step, were `job` (this batch's, with other constants) its job."""
        job = effect.job(job)
        layers = effect.layers(LayerTable.of(job, self.table))
        out = np.empty(len(self.table))
        for compiled, rows, part in self.parts:
            known = layers.take(rows)
            costs = on_schedule(job, part, known, effect.costs(job, part, known), compiled.schedule)
            out[rows] = step_end(compiled, costs, pipeline(compiled, costs)).step_time
        return out


def batches(cases: Sequence[Case]) -> list[Batch]:
    """Group cases by job and by what a plan table's rows share."""
    groups: list[list[int]] = []
    known: dict[tuple[object, ...], list[list[int]]] = {}
    for index, case in enumerate(cases):
        alike = known.setdefault(_key(case), [])
        for group in alike:
            if cases[group[0]].job == case.job:
                group.append(index)
                break
        else:
            alike.append([index])
            groups.append(alike[-1])
    return [_batch(cases, group) for group in groups]


def _key(case: Case) -> tuple[object, ...]:
    """What two cases must share, cheaply; equal jobs have equal names of everything."""
    job = case.job
    names = (
        job.model.name,
        job.model.tokens,
        job.model.num_layers,
        job.model.border,
        job.cluster.num_nodes,
        job.system.id,
        job.device.id,
        job.software.id,
    )
    return (*names, *(getattr(case.plan, name) for name in _SHARED))


def _batch(cases: Sequence[Case], group: list[int]) -> Batch:
    table = PlanTable.of([cases[index].plan for index in group])
    times = table.common.action_times
    parts = tuple(
        (compiled_schedule(*shape, times=times), rows, table.take(rows))
        for shape, rows in shapes(table)
    )
    return Batch(job=cases[group[0]].job, indices=np.array(group), table=table, parts=parts)
