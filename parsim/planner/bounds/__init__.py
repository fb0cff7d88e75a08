"""Tier A: what plans need at the least, without a schedule. Tables of plans enter, bounds leave.

cases     columns that a part of the costs depends on, each distinct combination once
parts     the stages and ranks that stand for all others of a cut
work      passes and activations of these: of model, degrees, micro-batch and recomputation
tail      reductions, shards and updates: of degrees, ZeRO stage and cut
plans     the closed forms that put both together, for all plans in chunks that stay in cache
shared    the bound of nodes of several kinds, whatever the placement
"""

from parsim.planner.bounds.plans import PlanBounds, plan_bounds
from parsim.planner.bounds.shared import ROUNDING, growth, shared_bound

__all__ = ["ROUNDING", "PlanBounds", "growth", "plan_bounds", "shared_bound"]
