"""Below what no order of a pipeline can end, whatever is found: three bounds for every stage.

    work    | head | F F F  idle  ............ idle  B |           nothing else fits into the idle
    chain   | head | F F F  idle  ............ last B | the backwards above, and a W behind them |
    trips   | head | down and back | down and back | ... | last trip and the backwards above |

The idle time of a stage is what its limit of micro-batches leaves of the trip below it: before its
first backward it can run no more forwards than it may hold, and behind its last forward no more
backwards. A limit of k also says that micro-batch i + k begins when i has come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parsim.schedule.orders.list_order import Work


def lower_bound(work: Work) -> float:
    """No order of the work ends earlier, in one that keeps micro-batches in order or in another."""
    return max(_Stage(work, stage).bound() for stage in range(len(work.stage_rank)))


@dataclass(slots=True)
class _Stage:
    """A stage of some work, one stage a rank."""

    work: Work
    stage: int

    def bound(self) -> float:
        """The largest of the three bounds."""
        work, m = self.work, self.work.num_microbatches
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
        return sum(self.work.forward[: self.stage]) + self.stage * self.work.message

    def _below(self) -> float:
        """From the end of a forward to the begin of its backward."""
        work, deeper = self.work, len(self.work.stage_rank) - 1 - self.stage
        both = sum(work.forward[self.stage + 1 :]) + sum(work.backward[self.stage + 1 :])
        return both + 2 * deeper * work.message

    def _tail(self) -> float:
        """From the end of the last backward on: those above it, and the W of one of them."""
        longest, way = 0.0, 0.0
        for above in reversed(range(self.stage)):
            way += self.work.message + self.work.backward[above]
            longest = max(longest, way + self._weight(above))
        return longest
