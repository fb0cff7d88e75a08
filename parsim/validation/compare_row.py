"""Predict one row of a table of measured runs."""

from __future__ import annotations

from dataclasses import replace

from parsim.errors import PlanError
from parsim.sim import Prediction, simulate
from parsim.sim.interval import step_interval
from parsim.sim.known_errors import Standing
from parsim.validation.bubble import bubble_of, is_post_validated, post_validated_step
from parsim.validation.build import Case, build_case
from parsim.validation.comparison import Comparison
from parsim.validation.schema import MeasuredRun, RowSkipped, parse_row


def compare_row(table: str, row: dict[str, str]) -> Comparison:
    """Predict one row."""
    row_id = row.get("row_id") or "(no row_id)"
    try:
        run = parse_row(row)
        case = build_case(run)
        found = simulate(case.job, case.plan)
        where = replace(found.standing, release=run.release)
        own, profiled = bubble_of(run, case.job, case.plan)
        step, said = _step(case, found)
    except (RowSkipped, PlanError) as reason:
        return Comparison(
            table=table,
            row_id=row_id,
            reason=str(reason),
            stack=row.get("stack", ""),
            device=row.get("gpu_type", ""),
            precision=row.get("precision", ""),
        )
    return Comparison(
        table=table,
        row_id=row_id,
        model=run.model,
        system=f"{case.job.cluster.num_nodes} x {run.system}",
        stack=run.stack,
        device=case.job.device.id,
        software=case.job.software.id,
        practice=case.job.practice,
        precision=case.plan.precision,
        plan=case.plan.label(),
        decision=_decision(case),
        notes=(*case.notes, *found.memory_notes, *_unstated(run), *said),
        predicted_step=step,
        measured_step=run.step_time,
        predicted_peak=max(found.peak_allocated),
        measured_peak=run.peak_memory if run.recompute else None,
        predicted_reserved=max(found.peak_reserved) if case.job.software.prints_reserved else None,
        step_interval=_interval(where, step),
        peak_interval=_peak_interval(case, found),
        measured_bubble=run.bubble_fraction,
        predicted_bubble=own,
        bubble_from_profile=profiled,
        case=case,
        standing=where,
    )


def _step(case: Case, found: Prediction) -> tuple[float, tuple[str, ...]]:
    """The step time, and what is assumed of it."""
    if not is_post_validated(case.job, case.plan):
        return found.step_time, ()
    said = "the norm of gradients is validated after the update (arXiv 2401.10241, section 4)"
    return post_validated_step(case.job, case.plan), (f"schedule {case.plan.schedule}: {said}",)


def _interval(where: Standing, step: float) -> tuple[float, float]:
    """The interval of the step time, which may be another than the simulated one."""
    interval = step_interval(where, step)
    return interval.low, interval.high


def _peak_interval(case: Case, found: Prediction) -> tuple[float, float]:
    """The peak's interval, of reserved memory where the stack prints that."""
    low, high = found.peak_interval
    scale = 1.0
    if case.job.software.prints_reserved:
        scale = max(found.peak_reserved) / max(found.peak_allocated)
    return scale * low, scale * high


def _decision(case: Case) -> tuple[str | int, ...]:
    """What is given when a plan is chosen; the model's sizes stand in its name and depth."""
    run = case.run
    return (run.stack, run.system, case.job.device.id, case.plan.precision, run.model, run.n_layers,
            run.seq_len, run.n_gpus, run.global_batch_size)  # fmt: skip


def _unstated(run: MeasuredRun) -> tuple[str, ...]:
    """Peaks differ several times over between recompute modes: one is not compared with a guess."""
    if run.peak_memory is None or run.recompute:
        return ()
    return (f"{run.row_id}: peak memory is not compared: recompute is not stated",)
