"""Predict one row of a table of measured runs of transformers."""

from __future__ import annotations

from dataclasses import replace

from parsim.errors import PlanError
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.interval import step_interval
from parsim.validation.measured_bubble import (
    bubble_of,
    is_post_validated,
    post_validated_step,
)
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.measured_run import MeasuredRun
from parsim.validation.step.row_reader import parse_row
from parsim.validation.tables import RowSkipped
from parsim.validation.validated_row import NAMELESS, ValidatedRow


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
        predicted_peak=_compared_peak(run, prediction),
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


def _compared_peak(run: MeasuredRun, prediction: Prediction) -> float:
    """Bytes allocated on the rank whose peak is measured: one of a pipeline's, or the fullest."""
    if run.memory_rank is not None:
        return prediction.peak_allocated[run.memory_rank]
    return prediction.fullest.peak_allocated


def _printed_peak(case: Case, prediction: Prediction) -> float | None:
    """Bytes of the same rank where more than the allocated is printed."""
    rank, reserved = case.run.memory_rank, prediction.fullest.peak_reserved
    if rank is not None:
        reserved = prediction.peak_reserved[rank]
    if case.run.memory_on_device:
        return reserved + case.job.context_memory
    return reserved if case.job.software.prints_reserved else None


def _peak_interval(case: Case, prediction: Prediction) -> tuple[float, float]:
    """The interval of the peak that is printed."""
    low, high = prediction.peak_interval
    printed = _printed_peak(case, prediction) or _compared_peak(case.run, prediction)
    scale = printed / prediction.fullest.peak_allocated
    return scale * low, scale * high


def _decision(case: Case) -> tuple[str | int, ...]:
    """What is given when a plan is chosen; the model's sizes stand in its name and depth."""
    run = case.run
    hardware = (run.stack, run.system, case.job.device.id, case.plan.precision)
    sizes = (run.n_layers, run.seq_len, run.n_gpus, run.global_batch_size)
    trained = ("LoRA", run.lora_rank) if run.lora_rank else ()
    return (*hardware, *trained, run.model, *sizes)


def _unstated(run: MeasuredRun) -> tuple[str, ...]:
    """Peaks differ several times over between recompute modes: one is not compared with a guess."""
    if run.peak_memory is None or run.recompute:
        return ()
    return (f"{run.row_id}: peak memory is not compared: recompute is not stated",)
