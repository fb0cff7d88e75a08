"""Predict one row of a table of networks' runs, and the speed-up that it states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from parsim.errors import InputError
from parsim.sim import simulate
from parsim.sim.confidence.interval import step_interval
from parsim.validation.step.case import PredictedCase
from parsim.validation.tables import RowSkipped
from parsim.validation.validated_row import ValidatedRow
from parsim.validation.vision.measured_samples import (
    MeasuredSamples,
    baseline_of,
    parse_samples,
    stated_speedup,
)
from parsim.validation.vision.samples_case import case_of, practice_of


def predict_samples(table: str, row: dict[str, str]) -> ValidatedRow:
    """Predict one row."""
    try:
        run = parse_samples(row)
        case = case_of(run)
        prediction = simulate(case.job, case.plan)
        pace = prediction.step_time / prediction.plan.global_batch_size
        speedup = None if run.speedup is None else _seconds_a_sample(baseline_of(row)) / pace
    except (RowSkipped, InputError) as reason:
        skipped = ValidatedRow.without_prediction(table, row, reason, row.get("framework", ""))
        return replace(skipped, measured_speedup=stated_speedup(row))
    standing = replace(
        prediction.standing, publisher=run.publisher, software=practice_of(run, case.job)
    )
    interval = step_interval(standing, pace * run.global_batch_size)
    return replace(
        _described(table, run, case),
        predicted_step=pace * run.global_batch_size,
        predicted_speedup=speedup,
        predicted_peak=sum(prediction.peak_allocated),
        predicted_reserved=sum(prediction.peak_reserved),
        step_interval=(interval.low, interval.high),
        standing=standing,
    )


def _described(table: str, run: MeasuredSamples, case: PredictedCase) -> ValidatedRow:
    """The row with what was run and measured, and nothing yet of what is predicted."""
    job, plan = case.job, case.plan
    return ValidatedRow(
        table=table,
        row_id=run.row_id,
        model=run.model,
        system=f"{job.cluster.num_nodes} x {run.system}",
        stack=run.framework.split(" ")[0],
        device=job.device.id,
        software=job.software.id,
        practice=practice_of(run, job),
        precision=plan.precision,
        plan=plan.label(),
        strategy=plan.strategy.name if plan.strategy.own_program else "",
        notes=case.notes,
        case=case,
        measured_step=run.step_time,
        measured_speedup=run.speedup,
        measured_peak=run.peak_memory,
    )


def _seconds_a_sample(row: Mapping[str, str]) -> float:
    """What the run that a speed-up is over takes for a sample, over all its devices."""
    case = case_of(parse_samples(row))
    return simulate(case.job, case.plan).step_time / case.plan.global_batch_size
