"""From an evaluated step to all that is said of it: speed, memory, intervals, notes."""

from __future__ import annotations

from typing import Any, NamedTuple

from parsim.cost.coverage import coverage_notes
from parsim.cost.recorded import recorded_notes
from parsim.cost.step.offload import offload_note, update_note
from parsim.model.adapters import adapters_note
from parsim.sim.drawing.spans import device_span
from parsim.sim.memory_prediction import memory_prediction
from parsim.sim.plan_interval import plan_interval, plan_standings
from parsim.sim.prediction import Prediction
from parsim.sim.recurrence.evaluate import Evaluation
from parsim.sim.step_breakdown import breakdown, source_notes
from parsim.sim.utilisation import mean_peak_flops, recomputed_flops

UNMEASURED = (
    "nodes of different kinds: no measured run of such a cluster is among parsim's rows, so that "
    "the interval is that of clusters of each kind alone"
)


def step_prediction(
    evaluation: Evaluation, memory_margin: float | None, *, stacks: bool = True
) -> Prediction:
    """All that is predicted of one step of a plan whose times and bytes are known.

    Args:
        evaluation: times and bytes.
        memory_margin: share of the usable memory that must stay free for the plan to fit; None:
            what the predicted peak may be wrong by.
        stacks: as of `plan_interval`.
    """
    step, parts = evaluation.step, breakdown(evaluation)
    standings = plan_standings(evaluation, parts)
    return Prediction(
        plan=step.plan,
        interval=plan_interval(evaluation, standings, stacks=stacks),
        standing=standings[0],
        breakdown=parts,
        notes=_notes(evaluation),
        **_speed(evaluation),
        **memory_prediction(evaluation, standings[0].sizes, memory_margin),
    )


def _speed(evaluation: Evaluation) -> dict[str, Any]:
    """How long the step takes and how well devices are used, by field of the prediction."""
    step, seconds, bubble = evaluation.step, evaluation.step_time, evaluation.bubble_fraction
    work, model = _flops(evaluation), step.job.model
    return {
        "step_time": seconds,
        "pipeline_time": evaluation.pipeline_time,
        "tokens_per_second": step.plan.global_batch_size * model.tokens / seconds,
        "speed_unit": model.speed_unit,
        "mfu": work.model / work.possible,
        "hfu": (work.model + work.again) / work.possible,
        "peak_flops": work.peak,
        "bubble_fraction": bubble,
        "bubble_overhead": bubble / (1.0 - bubble),
        "device_span": device_span(evaluation),
    }


class _Flops(NamedTuple):
    """FLOPs of a step: of the model, recomputed `again`, `possible` in its time; `peak` a second.

    `peak` is the mean of the devices.
    """

    model: float
    again: float
    possible: float
    peak: float


def _flops(evaluation: Evaluation) -> _Flops:
    job, plan = evaluation.step.job, evaluation.step.plan
    peak = mean_peak_flops(job, plan)
    return _Flops(
        model=float(job.model.step_flops(plan.global_batch_size)),
        again=recomputed_flops(job, plan),
        possible=evaluation.step_time * peak * plan.world_size,
        peak=peak,
    )


def _notes(evaluation: Evaluation) -> tuple[str, ...]:
    """Where the constants came from, kind by kind, and what was not measured."""
    job, plan = evaluation.step.job, evaluation.step.plan
    systems = job.cluster.systems
    unmeasured = (UNMEASURED,) if len({system.id for system in systems}) > 1 else ()
    sources = source_notes(systems, job.software)
    trained = filter(None, (adapters_note(job.model),))
    notes = (*sources, *trained, *_recorded(evaluation), *_coverage(evaluation))
    copies = [offload_note(system) for system in systems] if plan.offload_layers else []
    copies += [update_note(system) for system in systems if plan.optimizer_offload]
    return (*notes, *unmeasured, *copies)


def _recorded(evaluation: Evaluation) -> dict[str, None]:
    """What a reader must know of recorded runs on the devices, once each."""
    job, plan = evaluation.step.job, evaluation.step.plan
    recorded = (recorded_notes(s.device, job.model.name, plan) for s in job.cluster.systems)
    return dict.fromkeys(note for notes in recorded for note in notes)


def _coverage(evaluation: Evaluation) -> dict[str, None]:
    """What of each group's kernels and collectives was not measured, once each."""
    step = evaluation.step
    covered = (coverage_notes(step.job_on(group), step.plan) for group in step.systems())
    return dict.fromkeys(note for notes in covered for note in notes)
