"""The plans that a search has looked at: their bounds, and what became known of them since."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.cost.job import Job
from parsim.plan import PlanSpace, PlanTable
from parsim.planner.bounds import KnownCuts, plan_bounds
from parsim.planner.bounds.cases import layer_cases, price_layers
from parsim.planner.bounds.closed_forms import Seconds
from parsim.planner.equal.fewest import Fewest
from parsim.planner.equal.known import Known


@dataclass(slots=True, kw_only=True)
class Seen:
    """B plans: what is `known` of them, recomputed layers, least seconds of their parts."""

    table: PlanTable
    known: Known
    fewest: Fewest
    seconds: Seconds

    @classmethod
    def of(
        cls, job: Job, space: PlanSpace, table: PlanTable, usable: float, cuts: KnownCuts
    ) -> Seen:
        """Bound some plans: their bytes, and the steps of those that may have room."""
        cases = layer_cases(job, table)
        plans = table.take(cases.first)
        layers = price_layers(job, plans)
        fewest = Fewest.of(job, table, (plans, cases.of), usable, space.memory_margin)
        bounds = plan_bounds(job, table, layers, cases.of, fewest.room, cuts)
        fewest.repeated = bounds.repeated
        everything = np.arange(len(table))
        known = Known.unseen(
            layers,
            cases.of,
            usable=usable,
            margin=fewest.margins(everything),
            bound=bounds.step,
            max_bubble=space.max_bubble,
        )
        known.weigh(job.software, everything, bounds.peak)
        fewest.begin(known)
        table = replace(table, recompute_layers=bounds.repeated)
        return cls(table=table, known=known, fewest=fewest, seconds=bounds.seconds)

    def appended(self, other: Seen) -> Seen:
        """These plans and others of the same space behind them."""
        seconds = map(np.append, self.seconds, other.seconds)
        return Seen(
            table=self.table.appended(other.table),
            known=self.known.appended(other.known),
            fewest=self.fewest.appended(other.fewest),
            seconds=Seconds(*seconds),
        )
