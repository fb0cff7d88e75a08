"""The plans that a search has looked at: their bounds, and what became known of them since."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from parsim.arrays import Array, Index, sorted_values
from parsim.cost.job import Job
from parsim.cost.step.stages import plan_cut
from parsim.plan import PlanSpace, PlanTable
from parsim.plan.names import AUTO
from parsim.planner.bounds import KnownCuts, plan_bounds
from parsim.planner.bounds.cases import layer_cases, price_layers
from parsim.planner.bounds.closed_forms import Seconds
from parsim.planner.equal.exact import ExactShape, compiled_of
from parsim.planner.equal.fewest import Fewest
from parsim.planner.equal.known import Known
from parsim.planner.equal.ways import longest_ways

MANY = 8
"""Plans of one shape above which the longest ways through its schedule are looked for.

Of several shapes always: each would be priced and simulated by itself.
"""


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
        fewest, table = self.fewest.appended(other.fewest), self.table.appended(other.table)
        return Seen(
            table=replace(table, recompute_layers=fewest.repeated),  # which are settled later on
            known=self.known.appended(other.known),
            fewest=fewest,
            seconds=Seconds(*seconds),
        )

    def raise_bounds(self, num_layers: int, rows: Index) -> None:
        """Raise the bounds of plans of one schedule by the longest ways through its actions."""
        plan, setting = self.table.plan(int(rows[0])), self.table.setting[rows]
        settings = sorted_values(setting).tolist()
        few = len(rows) <= MANY and len(settings) == 1
        if few or plan.pp == 1 or plan.schedule == AUTO:
            return
        compiled, ways = compiled_of(plan), dict[tuple[object, ...], Array]()
        for number in settings:
            some = rows[setting == number]
            alike = self.table.plan(int(some[0]))
            cut, blocking = plan_cut(alike, num_layers), not alike.overlap_p2p
            if (cut, blocking) not in ways:
                ways[cut, blocking] = longest_ways(compiled, cut, blocking=blocking)
            if len(ways[cut, blocking]):
                self.known.raise_bound(some, self.seconds.along(some, ways[cut, blocking]))

    def count(self, job: Job, space: PlanSpace, rows: Index) -> None:
        """Count the bytes of plans of one shape, and simulate those that fit or are tight.

        Steps of those that are too large are infinite.
        """
        known = self.known
        shape = ExactShape(job, space, self.table.take(rows), known.layers_of(rows))
        peak = self.fewest.settled(rows, shape)
        known.margin[rows] = self.fewest.margins(rows)
        known.weigh(job.software, rows, peak)
        result = shape.evaluated(peak, known.usable)
        known.step[rows], known.bubble[rows] = result.step, result.bubble
        known.counted[rows] = True
