"""Tier A: what plans need at the least, without a schedule. Tables of plans enter, bounds leave.

cases     columns that a part of the costs depends on, each distinct combination once
parts     the stages and ranks that stand for all others of a cut
work      seconds of passes and messages of these: of model, degrees, micro-batch, recomputation
halves    seconds of backwards in two: of the same
kept      bytes that their activations keep: of the same
kinds     what schedules are, as the closed forms see them
flights   micro-batches in flight on these ranks: of schedule, stages and their number
tail      reductions and updates: of degrees, ZeRO stage and cut
standing  bytes that stay for the whole run: of the same
hops      messages between stages on their way to these ranks and back
priced    plans and their parts: bytes of the fullest rank, then steps, in chunks that stay in cache
closed_forms  what puts the parts of a step together
fewest_layers how many recomputed layers a plan needs to have room
plans     the bounds of a whole table
shared    the bound of nodes of several kinds, whatever the placement
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
