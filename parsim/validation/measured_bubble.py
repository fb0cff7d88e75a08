"""The bubble of a measured run: parsim's own, and that of the schedule with the run's own times.

    bubble = (cost - m (T_F + T_I + T_W)) / cost

with the cost the longest time of a rank between its first and its last action, as arXiv 2401.10241,
section 5, defines it. `own_bubble` takes every time from parsim's prices. `bubble_from_profile`
takes those that the row states, so that what is left to be wrong is the order of the actions.

Those papers' runs update without waiting for the norm of all gradients, which is validated after
the update (section 4 there): ranks that began later end later. `post_validated_step` is a step
of such runs, one after another.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from parsim.cost.job import Job
from parsim.cost.step.costs import StepCosts
from parsim.plan import Plan, PlanTable
from parsim.schedule import TIMED
from parsim.sim.drawing.spans import device_span, first_starts
from parsim.sim.recurrence.evaluate import Evaluation, evaluate, evaluate_step
from parsim.sim.step.action_times import kept_share, stage_times
from parsim.sim.step.kept_bytes import frees_before_weights
from parsim.sim.step.priced_step import plan_shape, price_step
from parsim.sim.step.schedule_costs import SplitCosts
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.row_cells import Profile


def bubble_of(run: MeasuredRun, job: Job, plan: Plan) -> tuple[float | None, float | None]:
    """(by parsim's own times, by the row's); None where the row has nothing to compare with."""
    if run.bubble_fraction is None or plan.pp == 1:
        return None, None
    profiled = None if run.profile is None else bubble_from_profile(job, plan, run.profile)
    return own_bubble(job, plan), profiled


def is_post_validated(job: Job, plan: Plan) -> bool:
    """Whether a measured run of the plan is taken to update without a barrier over all ranks."""
    return frees_before_weights(job, PlanTable.of([plan]), plan_shape(plan)[0])


def post_validated_step(job: Job, plan: Plan) -> float:
    """Seconds from one step to the next where no rank waits for others before its update.

    max over ranks of (gradients reduced + norm + update + gather - first action's start): a rank's
    next step begins as long behind rank 0's as this one did.

    Source: arXiv 2401.10241, section 4. Leaves out: the validation itself, which runs beside.
    """
    evaluation = evaluate(job, plan, keep=True)
    costs = evaluation.step.costs
    after = costs.late[0] + costs.norm[0] + costs.optimizer[:, 0] + costs.gather[:, 0]
    ends = evaluation.reduced[:, 0] + after
    return float((ends - first_starts(evaluation)).max() * (1.0 + costs.straggler[0]))


def own_bubble(job: Job, plan: Plan) -> float:
    """The bubble with parsim's times of the median stage, as the papers compute theirs.

    So the unequal stages of a cut, which no schedule can help, do not count as bubble.
    """
    forward, inputs, weights, message = stage_times(job, plan)
    profile = Profile(forward * plan.v, inputs * plan.v, weights * plan.v, message)
    return bubble_from_profile(job, plan, profile)


def bubble_from_profile(job: Job, plan: Plan, profile: Profile) -> float:
    """The bubble of the plan's schedule with given times, all stages alike.

    A rank's times are shared out evenly over its chunks. Searched schedules are searched for
    these times, within the papers' count of memory.
    """
    if plan.schedule in TIMED:
        kept = kept_share(job, PlanTable.of([plan]))
        forward, inputs, weights = (seconds / plan.v for seconds in profile[:3])
        times = (forward, inputs, weights, profile.message, kept)
        plan = replace(plan, action_times=times)
    step = price_step(job, plan)
    timed = replace(step, costs=_costs(step.costs, plan, profile))
    return _bubble(evaluate_step(timed, keep=True, memory=False))


def _costs(costs: StepCosts, plan: Plan, profile: Profile) -> SplitCosts:
    stages = np.ones_like(costs.forward) / plan.v
    backward = profile.backward_input + profile.backward_weight
    none, hop = np.zeros_like(stages), np.full_like(stages, profile.message)
    hop[-1] = 0.0
    pipeline = {
        "forward": profile.forward * stages,
        "backward": backward * stages,
        "exposed_forward": none,
        "exposed_backward": none,
        "recomputed": none,
        "hop": hop,
        "blocking_p2p": False,
        "experts": None,
    }
    # what follows the pipeline phase stays: a bubble does not depend on it
    values = {field.name: getattr(costs, field.name) for field in fields(StepCosts)}
    return SplitCosts(**{**values, **pipeline}, weight=profile.backward_weight * stages)


def _bubble(evaluation: Evaluation) -> float:
    idle = 1.0 - float(evaluation.busy[:, 0].mean()) / device_span(evaluation)
    return 0.0 if abs(idle) < 1e-12 else idle
