"""Which equal plans unequal stages are looked for with, and the degrees that stages may have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from parsim.cost.job import Job
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.divisors import divisors
from parsim.plan.rules.tensor import tensor_degrees, tensor_rules
from parsim.plan.space import chosen
from parsim.planner.unequal.candidates import Family
from parsim.planner.unequal.fitting import room_of

MOST_ALIKE = 4
"""Pairs of tensor-parallel ranks and micro-batch that are looked at, those of the best plans."""


def families(job: Job, space: PlanSpace, plans: Sequence[Plan]) -> Iterator[Family]:
    """What may stand in place of plans: stages of their degree, and stages of several."""
    like, room = list(_alike(plans)), room_of(job, space)
    for plan in like:
        yield Family.of(job, plan, (plan.tp,), room)
    first: dict[int, Plan] = {}
    for plan in like:
        first.setdefault(plan.microbatch_size, plan)
    for plan in first.values():
        degrees = _stage_degrees(job, space, plan)
        if len(degrees) > 1:
            yield Family.of(job, plan, degrees, room)


def _stage_degrees(job: Job, space: PlanSpace, plan: Plan) -> list[int]:
    """The tensor-parallel degrees of the space that a stage inside a node may have.

    They need not divide the devices, as one degree of all stages must.
    """
    model, cluster = job.model, job.cluster
    usual = {*divisors(cluster.num_devices), *tensor_degrees(model)}
    alone = replace(plan, sequence_parallel=False)
    legal = [
        tp
        for tp in sorted(usual)
        if tp <= job.system.devices_per_node
        and tensor_rules(replace(alone, tp=tp), model, cluster) is None
    ]
    return [tp for tp in legal if tp in chosen(space.tp, legal)]


def _alike(plans: Iterable[Plan]) -> Iterator[Plan]:
    """The first plan of each pair, with nothing recomputed or moved to the host, in their order."""
    first: dict[tuple[int, int], Plan] = {}
    for plan in plans:
        first.setdefault((plan.tp, plan.microbatch_size), plan)
    for plan in list(first.values())[:MOST_ALIKE]:
        yield replace(
            plan,
            recompute=Recompute.NONE,
            recompute_modules=(),
            recompute_layers=0,
            offload_layers=0,
            offload_modules=(),
        )
