"""The document of a run, `run.json`: what was predicted, what was measured, and how far apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from executor.devices.machine import DeviceReport
from executor.measure.steps import Spread, Steps, known
from parsim.comparison.compared import uncalibrated, unlike
from parsim.comparison.quantities import quantities_of
from parsim.cost.job import Job
from parsim.scenario import Scenario
from parsim.sim import Prediction
from parsim.sim.drawing.timeline import predicted_hardware
from parsim.timelines.timeline import Timeline

SCHEMA_VERSION = 1


class Measured(NamedTuple):
    """What rank 0 measured: steps, one recorded step, bytes of each rank's peak, what was verified.

    `evaluations` are losses of text that is not trained on, by the number of steps before.
    """

    steps: Steps
    timeline: Timeline
    peaks: list[float]
    checked: dict[str, Any] | None = None
    evaluations: Mapping[int, float] = {}


def run_document(
    scenario: Scenario,
    report: DeviceReport,
    predicted: Prediction,
    measured: Measured,
    meta: Mapping[str, Any],
) -> dict[str, Any]:
    """The document of `parsim run --json`; null where too few steps were left to time.

    `meta` says what the run was, see `executor.run.start`.
    """
    plan, spread = predicted.plan, Spread.of(measured.steps.seconds)
    ours = predicted_hardware(scenario.job)
    different = unlike(ours, measured_hardware(report, plan.world_size))
    return {
        **head(report, predicted, meta),
        "predicted": {
            "step_time_s": predicted.step_time,
            "peak_allocated_bytes": list(predicted.peak_allocated),
            "memory_fit": predicted.fit.value,
            **predicted.margin.to_json(),
        },
        "measured": _measured(scenario.job, predicted, measured, spread),
        "error": {
            "step_time": None if different else known(predicted.step_time / spread.median - 1.0),
            "peak_memory": max(predicted.peak_allocated) / max(measured.peaks) - 1.0,
            "unlike": different or None,
            "uncalibrated": list(uncalibrated(ours)),
        },
        "verify": measured.checked,
    }


def _measured(
    job: Job, predicted: Prediction, measured: Measured, spread: Spread
) -> dict[str, Any]:
    """What was measured, beside what follows from it; absent what the run did not have."""
    plan, steps, timeline = predicted.plan, measured.steps, measured.timeline
    flops = job.model.step_flops(plan.global_batch_size)
    capable = spread.median * predicted.peak_flops * plan.world_size
    return {
        "step_time_s": spread.to_json(),
        "step_seconds": list(steps.taken),
        "peak_allocated_bytes": measured.peaks,
        "bubble_fraction": bubble_fraction(timeline),
        "recording_cost": timeline.meta["recording_cost"],
        "tokens_per_s": known(plan.global_batch_size * job.model.tokens / spread.median),
        **({"tokens_of_sample": 1} if job.model.tokens == 1 else {}),
        "mfu": known(flops / capable),
        "loss": [known(loss) for loss in steps.losses],
        "lost_on_ranks": list(steps.lost_on),
        "restarts": steps.restarts,
        **core_pace(steps.core_products, job.device.core_product),
        **_of_some_runs(measured),
    }


def _of_some_runs(measured: Measured) -> dict[str, Any]:
    """What only runs with a scaled loss, with evaluations, or with experts have."""
    told: dict[str, Any] = {}
    if measured.steps.loss_scale is not None:
        scale, skipped = measured.steps.loss_scale, measured.steps.skipped
        told |= {"loss_scale": scale, "skipped_steps": skipped}
    if losses := measured.evaluations:
        told["evaluations"] = [{"steps": n, "loss": known(loss)} for n, loss in losses.items()]
    if (load := measured.timeline.meta.get("expert_load")) is not None:
        told["expert_load"] = load
    return told


def core_pace(products: Sequence[float], calibrated: float | None) -> dict[str, Any]:
    """How many times as slow as when they were calibrated cores were, where that is known."""
    if not products or calibrated is None:
        return {}
    paces = [seconds / calibrated for seconds in products]
    return {"core_pace": {"median": median(paces), "min": min(paces), "max": max(paces)}}


def head(report: DeviceReport, predicted: Prediction, meta: Mapping[str, Any]) -> dict[str, Any]:
    """What the document of any run begins with."""
    return {
        "schema_version": SCHEMA_VERSION,
        "meta": dict(meta),
        "plan": predicted.plan.to_json(),
        "device": str(report),
        "backend": report.backend,
    }


def measured_hardware(report: DeviceReport, world_size: int) -> dict[str, Any]:
    """What a measured timeline says of its hardware (`parsim.comparison.compared`)."""
    here = world_size // report.nodes
    what = "cores" if report.kind == "cpu" else "GPUs"
    shared = f"{here} ranks shared {report.count} {what}" if here > report.count else ""
    return {
        "device_kind": report.kind,
        "device_names": sorted(set(report.names)),
        "shared_devices": shared,
    }


def bubble_fraction(timeline: Timeline) -> float:
    """Idle share of the compute streams between the first and the last action, mean over ranks."""
    measured = quantities_of(timeline, {rank: (rank,) for rank in timeline.ranks})
    return measured.step["bubble_fraction"]
