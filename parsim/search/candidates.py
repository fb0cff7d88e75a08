"""Placed plans of a search on a mixed cluster: their bounds, their bytes and their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from parsim.cluster.mixed import rank_groups
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.stages import LayerTable
from parsim.cost.step import step_costs
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.schedule import build_schedule
from parsim.search.placements import Speeds, lower_bound, orders, placements, shared_bound
from parsim.sim.mixed import evaluate_mixed
from parsim.sim.mixed_costs import members
from parsim.sim.mixed_prediction import bubble_fraction
from parsim.sim.peaks import peak_memory
from parsim.sim.slots import Slots

Array = NDArray[np.float64]

ROUNDING = 1e-9
"""Share by which a bound may exceed a step by rounding alone."""


_Same = tuple[str, int, int, int, tuple[int, ...] | None]
"""Schedule, pp, micro-batches, v and cut: plans whose bytes are counted together."""


@dataclass(slots=True)
class Candidate:
    """A placed plan: which row of the table it is of, what it is known to need, its step."""

    plan: Plan
    row: int
    slots: Slots
    peak: float = 0.0
    fits: bool = False
    bound: float = 0.0
    step: float = np.inf
    bubble: float = 0.0


class Candidates:
    """One search: candidates, and what prices them."""

    def __init__(self, job: Job, space: PlanSpace, table: PlanTable) -> None:
        self.job, self.space, self.table = job, space, table
        systems = job.cluster.systems
        self.layers = [LayerTable.of(job.on(system), table) for system in systems]
        self.laid = {order: rank_groups(job.cluster, order) for order in orders(job.cluster)}
        doublings = max(float(np.log2(job.cluster.num_devices / 8.0)), 0.0)
        straggler = max(system.straggler for system in systems)
        self.growth = (1.0 + straggler * doublings) * (1.0 - ROUNDING)
        usable = [system.device.usable_memory for system in systems]
        self.usable = np.array(usable) * (1.0 - space.memory_margin)

    def bounds(self) -> Array:
        """Of every plan, whatever its placement, seconds."""
        groups = self.job.cluster.groups
        devices = [one.num_nodes * one.system.devices_per_node for one in groups]
        shared = shared_bound(self.layers, self.table, self.job.model, devices)
        return shared * self.growth

    def placed(self, rows: Sequence[int]) -> list[Candidate]:
        """Every placement of some plans, with what it needs and its bound."""
        found = []
        for row in rows:
            speeds, plan = Speeds.of(self.layers, row), self.table.plan(row)
            for one, slots in placements(plan, self.laid, self.job.model, speeds, self.usable):
                uneven = one.replica_microbatches is not None
                if uneven and illegal(self.job, one):
                    continue
                found.append(self.candidate(one, row, speeds, slots))
        self.weigh(found)
        return found

    def candidate(self, plan: Plan, row: int, speeds: Speeds, slots: Slots) -> Candidate:
        """One placement with its bound."""
        found = Candidate(plan=plan, row=row, slots=slots)
        found.bound = lower_bound(plan, self.job.model, speeds, slots) * self.growth
        return found

    def weigh(self, found: Sequence[Candidate]) -> None:
        """Count the bytes of candidates, those of one shape and cut together."""
        groups: dict[_Same, dict[int, list[Candidate]]] = {}
        for one in found:
            plan = one.plan
            for count in set(plan.microbatches):
                key = (plan.schedule, plan.pp, count, plan.v, plan.stage_layers)
                groups.setdefault(key, {}).setdefault(one.row, []).append(one)
        for one in found:
            one.fits = True
        for same, rows in groups.items():
            self._weigh(same[2], rows)

    def _weigh(self, count: int, rows: dict[int, list[Candidate]]) -> None:
        numbers = np.array(sorted(rows))
        plan = rows[int(numbers[0])][0].plan
        group = self.table.take(numbers)
        group = replace(group, common=replace(group.common, stage_layers=plan.stage_layers))
        layers = self.layers[0].take(numbers)
        on = self.job.on(self.job.cluster.systems[0])
        schedule = build_schedule(
            plan.schedule if plan.pp > 1 else "1f1b", pp=plan.pp, num_microbatches=count,
            v=plan.v, actions=plan.actions, times=plan.action_times,
        )  # fmt: skip
        costs = step_costs(on, group, layers)
        peaks = peak_memory(on, group, layers, costs, schedule).peak
        for column, row in enumerate(numbers.tolist()):
            for one in rows[row]:
                self._weighed(one, peaks[:, column], count)

    def _weighed(self, one: Candidate, peak: Array, count: int) -> None:
        """Whether each rank of the replicas with so many micro-batches fits its devices."""
        kinds = one.slots.kinds[:, one.slots.microbatches == count]
        one.peak = max(one.peak, float(peak.max()))
        for group in members(one.slots.world):
            on_it = (kinds >> group & 1).any(axis=1)
            one.fits = one.fits and bool((peak[on_it] <= self.usable[group]).all())

    def run(self, one: Candidate) -> None:
        """The exact step of a candidate."""
        layers = [table.take(np.array([one.row])) for table in self.layers]
        found = evaluate_mixed(self.job, one.plan, layers=layers, memory=False)
        one.step, one.bubble = found.step_time, bubble_fraction(found)
