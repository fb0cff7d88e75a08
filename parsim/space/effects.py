"""In which plans the settings of a search say something: rows of a table, jobs, words."""

from __future__ import annotations

import numpy as np

from parsim.arrays import Flags
from parsim.cost.job import Job
from parsim.plan import RANK_ORDER, Plan, PlanTable, Recompute


def order_word(plan: Plan) -> str:
    """Which axes of a plan are outside of which, where replicas are outside of the pipeline."""
    rare = plan.rank_order != RANK_ORDER and plan.pp > 1 < plan.dp
    axes = [axis for axis in plan.rank_order if plan.degree(axis) > 1]
    return f"by {'-'.join(axes)}" if rare else ""


def everywhere(table: PlanTable) -> Flags:
    """Every plan of a table."""
    return np.ones(len(table), dtype=bool)


def for_all(job: Job) -> bool:
    """Whatever is trained, and on what."""
    return True


def reduced(table: PlanTable) -> Flags:
    """Plans whose ranks sum gradients."""
    return np.asarray(table.dp * table.cp > 1)


def gathered(table: PlanTable) -> Flags:
    """Plans whose ranks share out states."""
    return np.asarray((table.zero_stage > 0) & (table.shards > 1))


def pipelined(table: PlanTable) -> Flags:
    """Plans whose stages send messages."""
    return np.asarray(table.pp > 1)


def scattered(table: PlanTable) -> Flags:
    """Plans whose stages can send messages in parts."""
    return np.asarray((table.pp > 1) & (table.tp > 1))


def ordered(table: PlanTable) -> Flags:
    """Plans in which either replicas or stages may be neighbours."""
    return np.asarray((table.pp > 1) & (table.dp > 1))


def in_context(table: PlanTable) -> Flags:
    """Plans that split sequences."""
    return np.asarray(table.cp > 1)


def kept(table: PlanTable) -> Flags:
    """Plans that compute no whole layers again."""
    return np.asarray(table.recompute == Recompute.NONE)


def has_experts(job: Job) -> bool:
    """Jobs whose model has experts."""
    return job.model.experts is not None
