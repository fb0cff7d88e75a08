"""Predict one row of a table of measured runs, and its bubble in both senses.

The bubble of a measured run: parsim's own, and that of the schedule with the run's own times.

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
from parsim.cost.step.step import StepCosts
from parsim.errors import PlanError
from parsim.plan import Plan, PlanTable
from parsim.schedule import TIMED, schedule_of
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.interval import step_interval
from parsim.sim.drawing.spans import device_span, first_starts
from parsim.sim.recurrence.evaluate import Evaluation, evaluate, evaluate_step
from parsim.sim.step.action_times import kept_share, stage_times
from parsim.sim.step.kept_bytes import frees_before_weights
from parsim.sim.step.priced_step import price_step
from parsim.sim.step.schedule_costs import SplitCosts
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.measured_run import MeasuredRun, parse_row
from parsim.validation.step.row_cells import Profile
from parsim.validation.tables import RowSkipped
from parsim.validation.validated_row import NAMELESS, ValidatedRow


def bubble_of(run: MeasuredRun, job: Job, plan: Plan) -> tuple[float | None, float | None]:
    """(by parsim's own times, by the row's); None where the row has nothing to compare with."""
    if run.bubble_fraction is None or plan.pp == 1:
        return None, None
    profiled = None if run.profile is None else bubble_from_profile(job, plan, run.profile)
    return own_bubble(job, plan), profiled


def is_post_validated(job: Job, plan: Plan) -> bool:
    """Whether a measured run of the plan is taken to update without a barrier over all ranks."""
    return frees_before_weights(job, PlanTable.of([plan]), schedule_of(plan))


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


def predict_row(table: str, row: dict[str, str]) -> ValidatedRow:
    """Predict one row."""
    try:
        run = parse_row(row)
        case = build_case(run)
        prediction = simulate(case.job, case.plan)
        bubble, profiled = bubble_of(run, case.job, case.plan)
        step, step_notes = _step(case, prediction)
    except (RowSkipped, PlanError) as reason:
        return ValidatedRow.without_prediction(table, row, reason, row.get("stack", ""))
    standing = replace(prediction.standing, release=run.release, publisher=run.publisher)
    interval = step_interval(standing, step)  # the step may be another than the simulated one
    return replace(
        _described(table, case),
        notes=(*case.notes, *prediction.memory_notes, *_unstated(run), *step_notes),
        predicted_step=step,
        predicted_peak=prediction.fullest.peak_allocated,
        predicted_reserved=_printed_peak(case, prediction),
        step_interval=(interval.low, interval.high),
        peak_interval=_peak_interval(case, prediction),
        predicted_bubble=bubble,
        bubble_from_profile=profiled,
        standing=standing,
    )


def _described(table: str, case: Case) -> ValidatedRow:
    """The row with what was run and measured, and nothing yet of what is predicted."""
    run, job, plan = case.run, case.job, case.plan
    return ValidatedRow(
        table=table,
        row_id=run.row_id or NAMELESS,
        model=run.model,
        system=f"{job.cluster.num_nodes} x {run.system}",
        stack=run.stack,
        device=job.device.id,
        software=job.software.id,
        practice=job.practice,
        precision=plan.precision,
        plan=plan.label(),
        decision=_decision(case),
        measured_step=run.step_time,
        measured_peak=run.peak_memory if run.recompute else None,
        measured_bubble=run.bubble_fraction,
        case=case,
    )


def _step(case: Case, prediction: Prediction) -> tuple[float, tuple[str, ...]]:
    """The step time, and what is assumed of it."""
    if not is_post_validated(case.job, case.plan):
        return prediction.step_time, ()
    note = "the norm of gradients is validated after the update (arXiv 2401.10241, section 4)"
    return post_validated_step(case.job, case.plan), (f"schedule {case.plan.schedule}: {note}",)


def _printed_peak(case: Case, prediction: Prediction) -> float | None:
    """Bytes of the fullest rank where more than the allocated is printed."""
    reserved = prediction.fullest.peak_reserved
    if case.run.memory_on_device:
        return reserved + case.job.context_memory
    return reserved if case.job.software.prints_reserved else None


def _peak_interval(case: Case, prediction: Prediction) -> tuple[float, float]:
    """The interval of the peak that is printed."""
    low, high = prediction.peak_interval
    peak = prediction.fullest.peak_allocated
    scale = (_printed_peak(case, prediction) or peak) / peak
    return scale * low, scale * high


def _decision(case: Case) -> tuple[str | int, ...]:
    """What is given when a plan is chosen; the model's sizes stand in its name and depth."""
    run = case.run
    hardware = (run.stack, run.system, case.job.device.id, case.plan.precision)
    sizes = (run.n_layers, run.seq_len, run.n_gpus, run.global_batch_size)
    return (*hardware, run.model, *sizes)


def _unstated(run: MeasuredRun) -> tuple[str, ...]:
    """Peaks differ several times over between recompute modes: one is not compared with a guess."""
    if run.peak_memory is None or run.recompute:
        return ()
    return (f"{run.row_id}: peak memory is not compared: recompute is not stated",)
