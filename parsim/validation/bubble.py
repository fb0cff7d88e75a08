"""The bubble of a measured run: parsim's own, and that of the schedule with the run's own times.

    bubble = (cost - m (T_F + T_I + T_W)) / cost

with the cost the longest time of a rank between its first and its last action, as arXiv 2401.10241,
section 5, defines it. `own_bubble` takes every time from parsim's prices. `bubble_from_profile`
takes those that the row states, so that what is left to be wrong is the order of the actions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from parsim.cost.job import Job
from parsim.cost.stages import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.schedule import TIMED
from parsim.sim.action_times import kept_share
from parsim.sim.evaluate import Evaluation, evaluate, finish
from parsim.sim.own_costs import OwnCosts
from parsim.sim.simulate import device_span, plan_shape
from parsim.validation.schema import MeasuredRun, Profile


def bubble_of(run: MeasuredRun, job: Job, plan: Plan) -> tuple[float | None, float | None]:
    """(by parsim's own times, by the row's); None where the row has nothing to compare with."""
    if run.bubble_fraction is None or plan.pp == 1:
        return None, None
    profiled = None if run.profile is None else bubble_from_profile(job, plan, run.profile)
    return own_bubble(job, plan), profiled


def own_bubble(job: Job, plan: Plan) -> float:
    """The bubble by parsim's prices; stages of unequal length count as bubble too."""
    return _bubble(evaluate(job, PlanTable.of([plan]), plan_shape(plan), keep=True))


def bubble_from_profile(job: Job, plan: Plan, profile: Profile) -> float:
    """The bubble of the plan's schedule with given times, all stages alike.

    A rank's times are shared out evenly over its chunks. Searched schedules are searched for
    these times, within the papers' count of memory.
    """
    if plan.schedule in TIMED:
        kept = kept_share(job, PlanTable.of([plan]))
        each = (profile.forward, profile.backward_input, profile.backward_weight)
        forward, inputs, weights = (seconds / plan.v for seconds in each)
        times = (forward, inputs, weights, profile.message, kept)
        plan = replace(plan, action_times=times)
    table = PlanTable.of([plan])
    layers = LayerTable.of(job, table)
    found = evaluate(job, table, plan_shape(plan), layers)
    costs = _costs(found, plan, profile)
    return _bubble(finish(job, table, layers, found.graph, costs, keep=True))


def _costs(found: Evaluation, plan: Plan, profile: Profile) -> OwnCosts:
    stages = np.ones_like(found.costs.forward) / plan.v
    backward = profile.backward_input + profile.backward_weight
    none, values = np.zeros_like(stages), {name: getattr(found.costs, name) for name in _UNUSED}
    hop = np.full_like(stages, profile.message)
    hop[-1] = 0.0
    return OwnCosts(
        **values,
        forward=profile.forward * stages,
        backward=backward * stages,
        weight=profile.backward_weight * stages,
        exposed_forward=none,
        exposed_backward=none,
        recomputed=none,
        hop=hop,
        blocking_p2p=False,
    )


_UNUSED = ("buckets", "bucket_time", "tied", "norm", "optimizer", "gather", "late", "straggler",
           "parameters", "overlap_reduce")  # fmt: skip
"""What follows the pipeline phase, which a bubble does not depend on."""


def _bubble(found: Evaluation) -> float:
    idle = 1.0 - float(found.busy[:, 0].mean()) / device_span(found)
    return 0.0 if abs(idle) < 1e-12 else idle
