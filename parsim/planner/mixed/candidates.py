"""Placed plans of a search on a mixed cluster: their bounds, their bytes and their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Index, ratio
from parsim.cluster.groups import rank_groups
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.step.step import step_costs
from parsim.plan import Plan, PlanSpace, PlanTable
from parsim.planner.bounds import KnownCuts, growth, least_peaks, shared_bound
from parsim.planner.bounds.cases import layer_cases, price_layers
from parsim.planner.mixed.orders import orders
from parsim.planner.mixed.placements import Speeds, lower_bound, placements
from parsim.planner.result import EvaluatedPlan
from parsim.schedule import build_schedule
from parsim.sim.confidence.memory_fit import (
    Fit,
    fit_of,
    highest_with_room,
    margin_shares,
    worst,
)
from parsim.sim.memory.activation_parts import peak_with_host
from parsim.sim.memory.eager_peaks import peak_memory
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.pricing import groups_in
from parsim.sim.step.replica_classes import DevicesOfRanks

_Alike = tuple[str, int, int, int, tuple[int, ...] | None, int]
"""Schedule, pp, micro-batches, v, cut and setting: plans whose bytes are counted together."""


@dataclass(slots=True)
class Candidate:
    """A placed plan: which row of the table it is of, what it is known to need, its step.

    `peak` is that of the fullest rank, bytes, and `share` what it takes of what is usable there.
    """

    plan: Plan
    row: int
    devices: DevicesOfRanks
    margin: float = 0.0
    peak: float = 0.0
    share: float = 0.0
    fit: Fit = Fit.TOO_LARGE
    bound: float = 0.0
    step: float = np.inf
    bubble: float = 0.0

    @property
    def evaluated(self) -> EvaluatedPlan:
        """The plan with the numbers of its exact step."""
        return EvaluatedPlan(
            plan=self.plan,
            step_time=self.step,
            bubble_fraction=self.bubble,
            peak_allocated=self.peak,
            fit=self.fit,
            margin=self.margin,
        )


class Candidates:
    """One search: candidates, and what prices them."""

    def __init__(self, job: Job, space: PlanSpace, table: PlanTable) -> None:
        self.job, self.space, self.table = job, space, table
        systems = job.cluster.systems
        cases = layer_cases(job, table)
        self.alike, self.case_of = table.take(cases.first), cases.of
        self.layers = [price_layers(job.on(system), self.alike) for system in systems]
        self.laid = {order: rank_groups(job.cluster, order) for order in orders(job.cluster)}
        self.growth = growth(job.cluster)
        cap = np.inf if space.memory_cap is None else space.memory_cap
        room = (job.software.usable_memory(system.device) for system in systems)
        self.usable = np.array([min(usable, cap) for usable in room])
        self.margin = margin_shares(job, self.alike, space.memory_margin)[cases.of]
        self.cuts: KnownCuts = {}

    def bounds(self) -> Array:
        """Lower bound of every plan's step, whatever its placement, seconds."""
        groups = self.job.cluster.groups
        devices = [group.num_nodes * group.system.devices_per_node for group in groups]
        shared = shared_bound(self.layers, self.alike, self.job.model, devices)
        return (shared * self.growth)[self.case_of]

    def crowding(self, rows: Index) -> Array:
        """Least bytes of some plans in equal parts, over those with which they have room, (B,).

        On the nodes with the least memory.
        """
        group = int(np.argmin(self.usable))
        table, layers = self.table.take(rows), self.layers[group]
        job = self.job.on(self.job.cluster.systems[group])
        peaks = least_peaks(job, table, layers, self.case_of[rows], self.cuts)
        room = highest_with_room(job.software, float(self.usable[group]), self.margin[rows])
        return ratio(peaks, room)

    def speeds(self, row: int) -> Speeds:
        """What the parts of one plan take on each kind of node."""
        return Speeds.of(self.layers, int(self.case_of[row]))

    def placed(self, rows: Sequence[int]) -> list[Candidate]:
        """Every placement of some plans, with what it needs and its bound."""
        candidates = []
        for row in rows:
            speeds, plan = self.speeds(row), self.table.plan(row)
            for placed_plan, devices in placements(
                plan, self.laid, self.job.model, speeds, self.usable
            ):
                uneven = placed_plan.replica_microbatches is not None
                if uneven and illegal(self.job, placed_plan):
                    continue
                candidates.append(self.candidate(placed_plan, row, speeds, devices))
        self.weigh(candidates)
        return candidates

    def candidate(self, plan: Plan, row: int, speeds: Speeds, devices: DevicesOfRanks) -> Candidate:
        """One placement with its bound."""
        placed = Candidate(plan=plan, row=row, devices=devices, margin=float(self.margin[row]))
        placed.bound = lower_bound(plan, self.job.model, speeds, devices) * self.growth
        return placed

    def weigh(self, candidates: Sequence[Candidate]) -> None:
        """Count the bytes of candidates, those of one shape and cut together."""
        alike_rows: dict[_Alike, dict[int, list[Candidate]]] = {}
        for candidate in candidates:
            plan = candidate.plan
            for count in set(plan.microbatches):
                setting = int(self.table.setting[candidate.row])
                key = (plan.schedule, plan.pp, count, plan.v, plan.stage_layers, setting)
                alike_rows.setdefault(key, {}).setdefault(candidate.row, []).append(candidate)
        for candidate in candidates:
            candidate.fit = Fit.FITS
        for alike, rows in alike_rows.items():
            self._weigh(alike[2], rows)

    def _weigh(self, count: int, rows: dict[int, list[Candidate]]) -> None:
        """Find the peaks of candidates with equal schedules, all plans at once."""
        numbers = np.array(sorted(rows))
        plan = rows[int(numbers[0])][0].plan
        plans = self.table.take(numbers).sharing({"stage_layers": plan.stage_layers})
        layers = self.layers[0].take(self.case_of[numbers])
        job = self.job.on(self.job.cluster.systems[0])
        schedule = build_schedule(
            plan.schedule if plan.pp > 1 else "1f1b",
            pp=plan.pp,
            num_microbatches=count,
            v=plan.v,
            actions=plan.actions,
            times=plan.action_times,
        )
        costs = step_costs(job, plans, layers)
        memory = peak_memory(job, plans, layers, costs, schedule)
        peaks = peak_with_host(job, plans, layers, memory, schedule)
        for column, row in enumerate(numbers.tolist()):
            for candidate in rows[row]:
                self._weighed(candidate, peaks[:, column], count)

    def _weighed(self, candidate: Candidate, peak: Array, count: int) -> None:
        """How ranks of the replicas with so many micro-batches fit their devices, at the worst."""
        kinds = candidate.devices.groups[:, candidate.devices.microbatches == count]
        for group in groups_in(candidate.devices.world):
            on_group = (kinds >> group & 1).any(axis=1)
            if on_group.any():
                largest, usable = float(peak[on_group].max()), float(self.usable[group])
                here = fit_of(self.job.software, largest, usable, candidate.margin)
                candidate.fit = worst((candidate.fit, here))
                fuller = (largest / usable, largest)
                candidate.share, candidate.peak = max(fuller, (candidate.share, candidate.peak))

    def run(self, candidate: Candidate) -> None:
        """The exact step of a candidate."""
        case = self.case_of[candidate.row : candidate.row + 1]
        layers = [table.take(case) for table in self.layers]
        evaluation = evaluate(self.job, candidate.plan, layers=layers, memory=False)
        candidate.step, candidate.bubble = evaluation.step_time, evaluation.bubble_fraction
