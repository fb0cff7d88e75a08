"""Plans without any option that saves memory: those of equal degrees, and all as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from parsim.arrays import Index, Ints
from parsim.plan import Plan, PlanTable
from parsim.planner.space.options import PLAIN


class Alike(NamedTuple):
    """N plain plans of equal degrees: the pipeline of each, its options (N, 3) and savings (N,).

    `pipelines` (N, 2) are numbers of names of schedules, and chunks; `degrees` is the number of
    their degrees among all.
    """

    plan: Plan
    pipelines: Ints
    options: Ints
    saving: Index
    degrees: int

    @property
    def row(self) -> tuple[int, ...]:
        """What `Listing.families` needs of their degrees as numbers."""
        plan = self.plan
        sizes = (plan.microbatch_size, plan.num_microbatches)
        return (plan.tp, plan.pp, plan.cp, plan.dp, plan.ep, *sizes)


def plain_plans(every: Sequence[Alike], names: tuple[str, ...], common: Plan) -> PlanTable:
    """All plans as columns, which save no memory; `names` are those of their schedules."""
    each = [len(alike.options) for alike in every]
    degrees = np.array([alike.row for alike in every], dtype=np.int64)
    tp, pp, cp, dp, ep, size, count = np.repeat(np.ascontiguousarray(degrees.T), each, axis=1)
    numbers, v = _columns([alike.pipelines for alike in every])
    schedule, names = _in_order(numbers, names)
    stage, shard, sequence = _columns([alike.options for alike in every])
    nothing = np.zeros_like(tp)
    return PlanTable(
        tp=tp,
        pp=pp,
        dp_replicate=dp // shard,
        dp_shard=shard,
        cp=cp,
        ep=ep,
        etp=np.full_like(tp, common.etp),
        microbatch_size=size,
        num_microbatches=count,
        v=v,
        zero_stage=stage,
        sequence_parallel=sequence > 0,
        recompute=nothing,
        recompute_layers=nothing,
        offload_layers=nothing,
        schedule=schedule,
        schedules=names,
        setting=nothing,
        settings=(replace(common, **PLAIN),),
    )


def _columns(rows: Sequence[Ints]) -> Ints:
    """The rows of all as contiguous columns."""
    return np.ascontiguousarray(np.concatenate(rows).T)


def _in_order(numbers: Index, names: tuple[str, ...]) -> tuple[Index, tuple[str, ...]]:
    """Numbers of names anew, and the names, in the order in which they first occur."""
    occurring, first = np.unique(numbers, return_index=True)
    order = occurring[np.argsort(first)]
    anew = np.empty(len(names), dtype=np.int64)
    anew[order] = np.arange(len(order))
    return anew[numbers], tuple(names[number] for number in order.tolist())
