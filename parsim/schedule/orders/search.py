"""The best order of a pipeline under a limit of memory, for stages of any lengths.

    1  dispatching rules, of which the best of many is taken (`rules_search`)
    2  small cases: branch and bound over all active schedules, which hold an optimum

Micro-batches keep their order on every rank, which is of one stage. Then a rank's row is a sequence
of F and B, or of F, I and W, and a limit of k micro-batches says that its F of micro-batch i comes
behind its B, or W, of i - k: the job-shop problem. What is found is compared with a lower bound.

Leaves out: orders in which micro-batches overtake one another; some whole and some split backwards.

Below what no order of a pipeline can end, whatever is found: three bounds for every stage.

    work    | head | F F F  idle  ............ idle  B |           nothing else fits into the idle
    chain   | head | F F F  idle  ............ last B | the backwards above, and a W behind them |
    trips   | head | down and back | down and back | ... | last trip and the backwards above |

The idle time of a stage is what its limit of micro-batches leaves of the trip below it: before its
first backward it can run no more forwards than it may hold, and behind its last forward no more
backwards. A limit of k also says that micro-batch i + k begins when i has come back. Of a stage's r
replicas, each with m / r micro-batches, one begins no earlier than a stage above with q replicas
has run (r - 1) // q forwards more than the first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from parsim.errors import ScheduleError
from parsim.schedule.orders.branch_and_bound import ROUNDING, BranchAndBound
from parsim.schedule.orders.dispatch import Shop
from parsim.schedule.orders.rules_search import best_rule
from parsim.schedule.orders.weight_fill import Rows
from parsim.schedule.orders.work import Work


def lower_bound(work: Work) -> float:
    """No order of the work ends earlier, in one that keeps micro-batches in order or in another."""
    return max(_Stage(work, stage).bound() for stage in range(len(work.stage_rank)))


@dataclass(slots=True)
class _Stage:
    """A stage of some work, one stage a rank, and the last of its replicas to begin."""

    work: Work
    stage: int

    def bound(self) -> float:
        """The largest of the three bounds."""
        work = self.work
        m = work.num_microbatches // work.replicas.counts[self.stage]
        forward, backward = work.forward[self.stage], work.backward[self.stage]
        limit, below, tail = min(work.limits[self.stage], m), self._below(), self._tail()
        before = max(0.0, below - (limit - 1) * forward)
        behind = max(0.0, below - (limit - 1) * (backward + self._weight(self.stage)))
        # with no more micro-batches than the limit both may be the same idle time
        idle = before + behind if m > limit else max(before, behind)
        head, trip = self._head(), forward + below + backward
        again = trip + self._weight(self.stage)
        return head + max(
            m * (forward + backward + self._weight(self.stage)) + idle,
            m * (forward + backward) + before + tail,
            (m - 1) // limit * again + trip + max(tail, self._weight(self.stage)),
        )

    def _weight(self, stage: int) -> float:
        return self.work.weight[stage] if self.work.weight else 0.0

    def _head(self) -> float:
        """Until the first forward can begin."""
        stage, counts = self.stage, self.work.replicas.counts
        ahead = self.work.forward[:stage]
        before = ((counts[stage] - 1) // q * each for each, q in zip(ahead, counts, strict=False))
        return sum(ahead) + sum(self.work.hops[0][:stage]) + max(before, default=0.0)

    def _below(self) -> float:
        """From the end of a forward to the begin of its backward."""
        work, behind = self.work, self.stage + 1
        both = sum(work.forward[behind:]) + sum(work.backward[behind:])
        return both + sum(sum(hops[self.stage :]) for hops in work.hops)

    def _tail(self) -> float:
        """From the end of the last backward on: those above it, and the W of one of them."""
        longest, way = 0.0, 0.0
        for above in reversed(range(self.stage)):
            way += self.work.hops[1][above] + self.work.backward[above]
            longest = max(longest, way + self._weight(above))
        return longest


RUN = 1_500_000
"""Actions of all rules that a search runs, by default: less than a second."""

BRANCHED = 400_000
"""Actions of all partial schedules that branch and bound looks at, by default: half a second."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The best rows found, when they end, a bound below which no order ends, and if it is proven.

    `proven` says that no order of this kind is shorter.
    """

    rows: Rows
    makespan: float
    bound: float
    proven: bool

    @property
    def gap(self) -> float:
        """The most by which a better order could be shorter, as a share of this one."""
        return 0.0 if self.proven else max(0.0, 1.0 - self.bound / self.makespan)


def search_order(
    work: Work, *, run: int = RUN, branched: int = BRANCHED, seconds: float | None = None
) -> Searched:
    """Search for the shortest order within the limits; equal input gives equal output.

    With `seconds` it searches for so long, so that what it finds depends on the machine.

    Args:
        work: one stage a rank, one copy; lengths and replicas may differ from stage to stage.
        run: actions that rules may run in all.
        branched: actions of all partial schedules that branch and bound may look at.
        seconds: for rules, instead of so many actions.

    Raises:
        ScheduleError: several stages a rank, a limit below 1, or replicas of a stage that cannot
            share the micro-batches evenly.
    """
    _check(work)
    shop, bound = Shop(work), lower_bound(work)
    until = None if seconds is None else time.perf_counter() + seconds
    rules, length = best_rule(shop, bound, run, until)
    if length <= bound * (1.0 + ROUNDING):
        return Searched(shop.rows(rules), length, length, proven=True)
    branch = BranchAndBound(work, length, branched // shop.actions)
    proven = branch.run()
    rows = shop.rows(rules) if branch.best is None else shop.in_order(branch.best)
    length = branch.upper
    return Searched(rows, length, length if proven else bound, proven)


def _check(work: Work) -> None:
    if tuple(work.stage_rank) != tuple(range(len(work.stage_rank))) or work.copies != 1:
        raise ScheduleError("an order is searched for with stage r on rank r alone")
    if min(work.limits) < 1:
        raise ScheduleError(
            f"limits {list(work.limits)} of micro-batches in flight: allowed are 1 and more"
        )
    work.replicas.check_shares(work.num_microbatches)
