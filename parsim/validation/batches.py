"""Step times of many measured runs at once, under changed constants or without one effect.

Rows of one job (model, cluster, software) are priced in one numpy call and simulated shape by
shape; schedules are compiled once. This is what a fit repeats a few hundred times: step times
alone, by the same functions and so with the same results as `simulate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.plan.table import COLUMNS
from parsim.sim.evaluate import pipeline, shapes
from parsim.sim.graph import Graph, graph_for
from parsim.sim.own_costs import own_costs
from parsim.sim.tail import tail
from parsim.validation.build import Case
from parsim.validation.effects import NOTHING, Effect

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

_SHARED = tuple(f.name for f in fields(Plan) if f.name not in (*COLUMNS, "schedule"))
"""Fields in which all plans of one table must agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Plans of one job; `places` says which cases of the list they are.

    `parts` are the plans of one shape each: compiled schedule, their rows here, their table.
    """

    job: Job
    places: Rows
    table: PlanTable
    parts: tuple[tuple[Graph, Rows, PlanTable], ...]

    def step_times(self, job: Job, effect: Effect = NOTHING) -> Array:
        """Seconds of each plan's step, were `job` (this batch's, with other constants) its job."""
        job = effect.job(job)
        layers = effect.layers(LayerTable.of(job, self.table))
        out = np.empty(len(self.table))
        for graph, rows, part in self.parts:
            known = layers.take(rows)
            costs = own_costs(job, part, known, effect.costs(job, part, known), graph.schedule)
            out[rows] = tail(graph, costs, pipeline(graph, costs)).step_time
        return out


def batches(cases: Sequence[Case]) -> list[Batch]:
    """Group cases by job and by what a plan table's rows share."""
    groups: list[list[int]] = []
    known: dict[tuple[object, ...], list[list[int]]] = {}
    for place, case in enumerate(cases):
        alike = known.setdefault(_key(case), [])
        for group in alike:
            if cases[group[0]].job == case.job:
                group.append(place)
                break
        else:
            alike.append([place])
            groups.append(alike[-1])
    return [_batch(cases, group) for group in groups]


def _key(case: Case) -> tuple[object, ...]:
    """What two cases must share, cheaply; equal jobs have equal names of everything."""
    job = case.job
    names = (job.model.name, job.model.seq_len, job.model.num_layers, job.model.hidden_size,
             job.cluster.num_nodes, job.system.id, job.device.id, job.software.id)  # fmt: skip
    return (*names, *(getattr(case.plan, name) for name in _SHARED))


def _batch(cases: Sequence[Case], group: list[int]) -> Batch:
    table = PlanTable.of([cases[place].plan for place in group])
    times = table.common.action_times
    parts = tuple(
        (graph_for(*shape, times=times), rows, table.take(rows)) for shape, rows in shapes(table)
    )
    return Batch(job=cases[group[0]].job, places=np.array(group), table=table, parts=parts)
