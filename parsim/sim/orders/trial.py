"""Schedules that one plan is simulated with, and which of them is the best that fits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.plan import Plan
from parsim.plan.names import AUTO, SPLIT, TWO_WAY, V_SHAPED
from parsim.schedule import build_schedule
from parsim.schedule.orders.search import Searched, search_order
from parsim.schedule.orders.work import Work
from parsim.schedule.replicas import Rows, StageReplicas
from parsim.schedule.rows_csv import write_rows
from parsim.sim.confidence.memory_fit import Fit, fit_of, margin_of
from parsim.sim.memory.reserved import reserved_bytes
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.stages.rows import stage_rows
from parsim.sim.stages.variants import alike

WHOLE = ("1f1b", "eager_1f1b", "gpipe")
"""Named schedules of whole backwards, one stage a rank."""

NAMED = (*WHOLE, *sorted(SPLIT - V_SHAPED - {*TWO_WAY}))
"""All named schedules of one stage a rank, which the result is compared with."""

ROUNDING = 1e-9
"""Steps that differ by less, as a share, are equally long."""

TRIES = 3
"""Limits that are tried, each by one micro-batch smaller, where an order does not fit after all."""


class Trial:
    """The schedules that a plan is simulated with: their seconds, and their fullest ranks' bytes.

    What the plan may not be run with is left out.
    """

    def __init__(self, job: Job, plan: Plan, stated: float | None = None) -> None:
        self.job, self.plan = job, plan
        same = with_named(plan, "1f1b")
        same = same if plan.stages is None else alike(same, tp=max(plan.stage_tp))
        margin = margin_of(job, same, stated)
        self.margin = margin.share
        usable = job.usable_memory
        reserved = float(reserved_bytes(job.software, np.array(usable)))
        self.capacity = margin.left(usable) * usable / reserved
        self.rows: dict[str, Rows] = {}
        self.times: dict[str, float] = {}
        self.peaks: dict[str, float] = {}

    def take(self, name: str, rows: Rows) -> None:
        """Simulate the plan with an order of its actions."""
        plan = with_order(self.plan, rows)
        if illegal(self.job, plan) is not None:
            return
        self.rows[name] = rows
        self.times[name], self.peaks[name] = _step_and_peak(self.job, plan)

    def ordered(self, name: str) -> Plan:
        """The plan with an order that was simulated."""
        return with_order(self.plan, self.rows[name])

    def search(self, name: str, work: Work, seconds: float | None) -> Searched:
        """Search an order, with smaller limits where its buffers stand where most is held."""
        for spared in range(TRIES):
            limits = tuple(max(1, limit - spared) for limit in work.limits)
            smaller = replace(work, limits=limits)
            longer = seconds is not None
            searched = search_order(smaller, seconds=seconds) if longer else _searched(smaller)
            self.take(name, searched.rows)
            if self._fit(name) == Fit.FITS:
                break
        return searched

    def best(self) -> str:
        """The fastest of those that fit best; the smallest where none fits at all.

        Of those that are as fast but for rounding, the smallest, and one with a name first.
        """
        word = min((self._fit(name) for name in self.times), key=list(Fit).index)
        alike = [name for name in self.times if self._fit(name) == word]
        weighed = self.peaks if word == Fit.TOO_LARGE else self.times
        least = min(weighed[name] for name in alike) * (1.0 + ROUNDING)
        return min((name for name in alike if weighed[name] <= least), key=self.peaks.__getitem__)

    def as_good(self, name: str, chosen: str) -> bool:
        """Whether a schedule was simulated, and fits as well as the chosen one."""
        return name in self.times and self._fit(name) == self._fit(chosen)

    def _fit(self, name: str) -> Fit:
        usable = self.job.usable_memory
        return fit_of(self.job.software, self.peaks[name], usable, self.margin)


@lru_cache(maxsize=64)
def _searched(work: Work) -> Searched:
    return search_order(work)


def _step_and_peak(job: Job, plan: Plan) -> tuple[float, float]:
    """Seconds of a step, and the bytes of the fullest rank."""
    if plan.stages is not None:
        from parsim.sim.stages.run import TaskRun  # events, which few plans need

        run = TaskRun(job, plan)
        return run.step_time, float(run.peaks.max())
    evaluation = evaluate(job, plan)
    return evaluation.step_time, float(evaluation.peak.max())


def named_of(plan: Plan) -> tuple[str, ...]:
    """The named schedules that a plan's order is compared with."""
    return NAMED if plan.stages is None else ("1f1b",)


def with_named(plan: Plan, name: str) -> Plan:
    """The plan with a named schedule of one stage a rank."""
    cut = plan.stage_layers if plan.v == 1 else None
    return replace(plan, schedule=name, v=1, stage_layers=cut, actions=None)


def with_order(plan: Plan, rows: Rows) -> Plan:
    """The plan with an order of its own."""
    actions = write_rows(rows).replace("\r\n", "\n")
    return replace(with_named(plan, AUTO), actions=actions)


def rows_of(plan: Plan, name: str) -> Rows:
    """The rows of a named schedule of one stage a rank, for the shape of a plan."""
    if plan.stages is not None:
        replicas = StageReplicas(tuple(stage.replicas for stage in plan.stages))
        return stage_rows(with_named(plan, name), replicas)
    return build_schedule(name, pp=plan.pp, num_microbatches=plan.num_microbatches).ranks
