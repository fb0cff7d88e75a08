"""Predictions of all cases, written before any of them runs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from executor.suite.budget import Cost
from executor.suite.cases import Platform, SuiteCase, scenario_text
from parsim.comparison.quantities import Quantities, quantities_of
from parsim.errors import ParsimError
from parsim.report.writing import write_text
from parsim.scenario import Scenario, load_scenario
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.timelines.timeline import Timeline
from parsim.units import format_bytes

SCHEMA_VERSION = 1

KINDS = {
    "forward": "F_mean_s",
    "backward": "B_mean_s",
    "optimizer": "OPTIMIZER_mean_s",
    "exposed_communication": "exposed_communication_s",
    "gradient_reduction": "gradient_reduction_s",
    "waiting": "idle_s",
}
"""Parts of a step that are compared: mean length of an action, or mean seconds of a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """What is known of a case before it runs; `refused` says why it cannot be run, if so."""

    cost: Cost
    document: Mapping[str, Any]
    refused: str = ""


def scenario_of(out: Path, case: SuiteCase) -> Path:
    """The case's scenario file."""
    return out / case.name / "scenario.yaml"


def predict(
    out: Path, cases: Sequence[SuiteCase], platform: Platform, *, written: bool = False
) -> dict[str, Predicted]:
    """Write a scenario for each case, and `predictions.json` where they are not `written` yet."""
    predictions = {}
    for case in cases:
        write_text(scenario_of(out, case), scenario_text(case, platform))
        predictions[case.name] = _predicted(scenario_of(out, case))
    if written:
        return predictions
    document = {
        "schema_version": SCHEMA_VERSION,
        "written_at": now(),
        "catalog": "device.yaml",
        "cases": {name: prediction.document for name, prediction in predictions.items()},
    }
    write_text(out / "predictions.json", json.dumps(document, indent=2) + "\n")
    return predictions


def now() -> str:
    """The time of day, UTC, to the microsecond."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def _predicted(path: Path) -> Predicted:
    try:
        scenario = load_scenario(path)
        plan, margin = scenario.fixed_plan(), scenario.memory_margin
        prediction = simulate(scenario.job, plan, timeline=True, memory_margin=margin)
    except ParsimError as error:
        reason = str(error).replace(f"{path.parent.parent}/", "")
        return Predicted(cost=Cost.of(0.0, 0.0), document={"refused": reason}, refused=reason)
    cost = Cost.of(scenario.job.model.parameters, prediction.step_time)
    return Predicted(
        cost=cost, document=_document(scenario, prediction), refused=_too_large(prediction)
    )


def _document(scenario: Scenario, prediction: Prediction) -> dict[str, Any]:
    return {
        "plan": prediction.plan.label(),
        "model": scenario.job.model.name,
        "parameters": scenario.job.model.parameters,
        "step_time_s": prediction.step_time,
        "step_time_interval_s": prediction.interval.to_json(),
        "interval_basis": prediction.interval.basis,
        "peak_allocated_bytes": list(prediction.peak_allocated),
        "memory_fit": prediction.fit.value,
        "kinds_s": kinds(quantities(prediction.timeline)),
    }


def _too_large(prediction: Prediction) -> str:
    """Why a case cannot be run, or nothing."""
    if prediction.fit is not Fit.TOO_LARGE:
        return ""
    fullest = prediction.fullest
    peak, usable = format_bytes(fullest.peak_allocated), format_bytes(fullest.usable)
    return f"predicted to need {peak} of the {usable} of a device"


def quantities(timeline: Timeline | None) -> Quantities:
    """What a timeline amounts to, rank by rank."""
    if timeline is None:
        raise RuntimeError("simulate returned no timeline")
    return quantities_of(timeline, {rank: (rank,) for rank in timeline.ranks})


def kinds(measured: Quantities) -> dict[str, float]:
    """The parts of the step in `KINDS` that a timeline has, seconds."""
    parts = {}
    for name, quantity in KINDS.items():
        if quantity in measured.kinds:
            parts[name] = measured.kinds[quantity]
        elif all(quantity in rank for rank in measured.ranks.values()):
            parts[name] = fmean(rank[quantity] for rank in measured.ranks.values())
    return parts
