"""Lower bounds of steps (tier A), without a schedule: tables of plans enter, bounds leave.

cases.py         columns that a part of the costs depends on, each distinct combination once
parts.py         the stages and ranks that stand for all others of a cut
work.py          seconds of passes and messages of these: of model, degrees, micro-batch
halves.py        seconds of backwards in two: of the same
hops.py          messages between stages on their way to these ranks and back
schedules.py     kinds of schedules, and micro-batches in flight on these ranks
kept.py          bytes that activations keep, and that stay for the whole run
sharded.py       collectives of shards inside passes, and those that compute can be beside
tail.py          reductions and updates: of degrees, ZeRO stage and cut
closed_forms.py  what puts the parts of a step together; nodes of several kinds
priced.py        plans and their parts: bytes of the fullest rank, then steps
plans.py         the bounds of a whole table, and the fewest recomputed layers that have room
"""

from parsim.planner.bounds.closed_forms import ROUNDING, growth, shared_bound
from parsim.planner.bounds.parts import KnownCuts
from parsim.planner.bounds.plans import PlanBounds, Room, least_peaks, least_steps, plan_bounds

__all__ = [
    "ROUNDING",
    "KnownCuts",
    "PlanBounds",
    "Room",
    "growth",
    "least_peaks",
    "least_steps",
    "plan_bounds",
    "shared_bound",
]
