"""Tier A: what plans need at the least, without a schedule. Tables of plans enter, bounds leave.

cases     columns that a part of the costs depends on, each distinct combination once
parts     the stages and ranks that stand for all others of a cut
work      passes and activations of these: of model, degrees, micro-batch and recomputation
tail      reductions, shards and updates: of degrees, ZeRO stage and cut
hops      messages between stages on their way to these ranks and back
priced    plans and their parts, in chunks that stay in cache
closed_forms  what puts the parts together: seconds of a step, bytes of its fullest rank
fewest_layers how many recomputed layers a plan needs to have room
plans     the bounds of a whole table
shared    the bound of nodes of several kinds, whatever the placement
"""

from parsim.planner.bounds.plans import PlanBounds, Room, plan_bounds
from parsim.planner.bounds.shared import ROUNDING, growth, shared_bound

__all__ = ["ROUNDING", "PlanBounds", "Room", "growth", "plan_bounds", "shared_bound"]
