"""What a search on legal plans works on: one record for every kind of node and of answer."""

from __future__ import annotations

from dataclasses import dataclass

from parsim.cost.job import Job
from parsim.plan import PlanSpace, PlanTable
from parsim.planner.result import Request
from parsim.planner.space import Enumeration
from parsim.planner.space.families import Families


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A job, the space of its plans and those that are legal, and what is asked of them.

    `listed` is what the space holds, `families` its legal plans; `begin` is `time.perf_counter`
    when the search began.
    """

    job: Job
    space: PlanSpace
    listed: Enumeration
    families: Families
    request: Request
    begin: float

    @property
    def table(self) -> PlanTable:
        """All legal plans as columns."""
        return self.families.table()
