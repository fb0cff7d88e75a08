"""Schedules that one plan is simulated with, and which of them is the best that fits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.plan import Plan
from parsim.plan.names import AUTO, SPLIT, TWO_WAY, V_SHAPED
from parsim.schedule import Schedule, build_schedule
from parsim.schedule.orders.search import Searched, search_order
from parsim.schedule.orders.work import Work
from parsim.sim.confidence.memory_fit import Fit, Margin, fit_of
from parsim.sim.memory.reserved import reserved_bytes
from parsim.sim.recurrence.evaluate import evaluate

WHOLE = ("1f1b", "eager_1f1b", "gpipe")
"""Named schedules of whole backwards, one stage a rank."""

NAMED = (*WHOLE, *sorted(SPLIT - V_SHAPED - {*TWO_WAY}))
"""All named schedules of one stage a rank, which the result is compared with."""

TRIES = 3
"""Limits that are tried, each by one micro-batch smaller, where an order does not fit after all."""


class Trial:
    """The schedules that a plan is simulated with: their seconds, and their fullest ranks' bytes.

    What the plan may not be run with is left out.
    """

    def __init__(self, job: Job, plan: Plan, margin: Margin) -> None:
        self.job, self.plan, self.margin = job, plan, margin.share
        usable = job.usable_memory
        reserved = float(reserved_bytes(job.software, np.array(usable)))
        self.capacity = margin.left(usable) * usable / reserved
        self.schedules: dict[str, Schedule] = {}
        self.times: dict[str, float] = {}
        self.peaks: dict[str, float] = {}

    def take(self, name: str, schedule: Schedule) -> None:
        """Simulate the plan with a schedule."""
        plan = with_order(self.plan, schedule)
        if illegal(self.job, plan) is not None:
            return
        evaluation = evaluate(self.job, plan)
        self.schedules[name] = schedule
        self.times[name], self.peaks[name] = evaluation.step_time, float(evaluation.peak.max())

    def search(self, name: str, work: Work, seconds: float | None) -> Searched:
        """Search an order, with smaller limits where its buffers stand where most is held."""
        for spared in range(TRIES):
            limits = tuple(max(1, limit - spared) for limit in work.limits)
            smaller = replace(work, limits=limits)
            longer = seconds is not None
            searched = search_order(smaller, seconds=seconds) if longer else _searched(smaller)
            self.take(name, Schedule.from_ranks(searched.rows, name=AUTO))
            if self._fit(name) == Fit.FITS:
                break
        return searched

    def best(self) -> str:
        """The fastest of those that fit best; the smallest where none fits at all."""
        word = min((self._fit(name) for name in self.times), key=list(Fit).index)
        alike = [name for name in self.times if self._fit(name) == word]
        weighed = self.peaks if word == Fit.TOO_LARGE else self.times
        return min(alike, key=lambda name: (weighed[name], self.peaks[name]))

    def as_good(self, name: str, chosen: str) -> bool:
        """Whether a schedule was simulated, and fits as well as the chosen one."""
        return name in self.times and self._fit(name) == self._fit(chosen)

    def _fit(self, name: str) -> Fit:
        usable = self.job.usable_memory
        return fit_of(self.job.software, self.peaks[name], usable, self.margin)


@lru_cache(maxsize=64)
def _searched(work: Work) -> Searched:
    return search_order(work)


def with_named(plan: Plan, name: str) -> Plan:
    """The plan with a named schedule of one stage a rank."""
    cut = plan.stage_layers if plan.v == 1 else None
    return replace(plan, schedule=name, v=1, stage_layers=cut, actions=None)


def with_order(plan: Plan, schedule: Schedule) -> Plan:
    """The plan with an order of its own."""
    actions = schedule.to_csv().replace("\r\n", "\n")
    return replace(with_named(plan, AUTO), actions=actions)


def built(plan: Plan, name: str) -> Schedule:
    """A named schedule of one stage a rank, for the shape of a plan."""
    return build_schedule(name, pp=plan.pp, num_microbatches=plan.num_microbatches)
