"""Corrects a calibrated file by runs of `parsim run`: what kernels by themselves did not show.

Each run is predicted once more with the file as it is, without any correction, and its recorded
step is laid beside it:

    forward, backward, optimizer = measured / predicted seconds of one action (of all updates)
    step                         = median measured step / predicted step
    left                         = the same, once the run's own three factors are applied

Recording makes a step longer, so its actions are scaled by the median step over the recorded one.
The factors stand in the file with date, model and plan; they apply to plans of the run's condition
(`parsim/cost/recorded.py`), and predictions name them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from parsim.cluster.evidence import MOST_FACTOR, RecordedStep
from parsim.comparison.quantities import Quantities, quantities_of
from parsim.cost.job import Job
from parsim.cost.recorded import condition_of
from parsim.errors import InputError, shown
from parsim.launch.run_file import Run, read_run
from parsim.report.writing import check_writable, write_text
from parsim.scenario import Scenario, load_scenario
from parsim.sim import Prediction, simulate
from parsim.timelines.timeline import Timeline

SCHEMA_VERSION = 1
BACKWARD = ("B_mean_s", "I_mean_s", "W_mean_s")
"""A backward is whole or in two; a step with both kinds counts both on both sides."""


def correct(
    file: Path, runs: Sequence[Path], pairs: Mapping[str, str], scenario: Path | None = None
) -> dict[str, Any]:
    """Add recorded runs to a calibrated file; the document of what they showed.

    Args:
        file: written by `parsim calibrate`; a run that it has already is replaced.
        runs: `run.json` files, or their folders, each with its `timeline.json` beside it.
        pairs: overrides that put the file's device in a scenario's place.
        scenario: what was run, where a `run.json` does not hold it.

    Raises:
        InputError: a run is incomplete, of other hardware, or too far from its prediction.
    """
    check_writable(file)
    steps: list[RecordedStep] = []
    device = ""
    for path in runs:
        run = read_run(path)
        loaded = _scenario_of(run, pairs, scenario)
        _check_alike(run, loaded)
        device = loaded.job.device.id
        steps.append(recorded_step(run, loaded))
    write_text(file, with_steps(file.read_text(encoding="utf-8"), device, steps))
    listed = [asdict(step) for step in steps]
    return {"schema_version": SCHEMA_VERSION, "file": str(file), "device": device, "runs": listed}


def recorded_step(run: Run, scenario: Scenario) -> RecordedStep:
    """What a run shows beside its prediction on the scenario's device without any correction."""
    job, plan = _with_steps(scenario.job, ()), scenario.fixed_plan()
    predicted = simulate(job, plan, timeline=True)
    split, sharded = condition_of(plan)
    recorded = RecordedStep(
        date=run.date,
        model=job.model.name,
        plan=plan.label(),
        split=split,
        sharded=sharded,
        ranks=plan.world_size,
        n=run.n,
        step=run.step_time / predicted.step_time,
        left=1.0,
        **_factors(run, predicted),
    )
    corrected = simulate(_with_steps(job, (recorded,)), plan)
    recorded = replace(recorded, left=run.step_time / corrected.step_time)
    _check_plausible(run.path, recorded)
    return recorded


def with_steps(text: str, device: str, runs: Sequence[RecordedStep]) -> str:
    """A calibrated file's text with recorded runs; those of equal date, model and plan give way.

    Raises:
        InputError: the runs are of a device that the file does not have.
    """
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.width = 1 << 16
    yaml.preserve_quotes = True
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    if device not in document["devices"]:
        raise InputError(
            f"the run is of device {shown(device)}, which the file to correct does not have; it "
            f"has {', '.join(map(shown, document['devices']))}"
        )
    entry = document["devices"][device]
    new = {run.words for run in runs}
    kept = [dict(old) for old in entry.get("steps") or ()]
    kept = [old for old in kept if f"{old['date']}, {old['model']}, {old['plan']}" not in new]
    entry["steps"] = [*kept, *(_rounded(run) for run in runs)]
    out = StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _rounded(run: RecordedStep) -> dict[str, Any]:
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in asdict(run).items()
    }


def _factors(run: Run, predicted: Prediction) -> dict[str, float]:
    """Measured over predicted seconds of forwards, backwards and updates; 1 of what has none."""
    if predicted.timeline is None:  # it was asked for
        raise InputError(f"{run.path}: its prediction has no timeline")
    ours, theirs = (_quantities(each) for each in (run.timeline, predicted.timeline))
    scale = run.step_time / run.timeline.end if run.timeline.end > 0.0 else 1.0
    pairs = {
        "forward": (ours.kinds.get("F_mean_s", 0.0), theirs.kinds.get("F_mean_s", 0.0)),
        "backward": tuple(sum(x.kinds.get(kind, 0.0) for kind in BACKWARD) for x in (ours, theirs)),
        "optimizer": (ours.step["optimizer_s"], theirs.step["optimizer_s"]),
    }
    return {
        name: scale * measured / modelled if measured > 0.0 and modelled > 0.0 else 1.0
        for name, (measured, modelled) in pairs.items()
    }


def _quantities(timeline: Timeline) -> Quantities:
    return quantities_of(timeline, {rank: (rank,) for rank in timeline.ranks})


def _with_steps(job: Job, steps: tuple[RecordedStep, ...]) -> Job:
    device = replace(job.system.device, steps=steps)
    system = replace(job.system, device=device)
    return replace(job, cluster=replace(job.cluster, system=system))


def _scenario_of(run: Run, pairs: Mapping[str, str], given: Path | None) -> Scenario:
    """The run's scenario on the calibrated device: as it is in `run.json`, else the one given."""
    ours = ("cluster.catalog", "cluster.system", "cluster.device")
    sets = {name: value for name, value in run.sets.items() if name not in ours}
    if run.scenario is None:
        if given is None:
            raise InputError(f"{run.path} does not hold its scenario; give it with --scenario FILE")
        return load_scenario(given, {**sets, **pairs})
    with tempfile.TemporaryDirectory(prefix="parsim-scenario-") as folder:
        path = Path(folder, run.file)  # a name without folders: not where a document wants it
        path.write_text(run.scenario, encoding="utf-8", errors="replace")
        return load_scenario(path, {**sets, **pairs})


def _check_alike(run: Run, scenario: Scenario) -> None:
    """The run is of the scenario's plan and of the file's hardware, as far as it says.

    Raises:
        InputError: it is not.
    """
    plan = scenario.fixed_plan().to_json()
    if run.plan != json.loads(json.dumps(plan)):
        raise InputError(
            f"{run.path} is a run of another plan than its scenario's; give the scenario that ran"
        )
    name = scenario.job.device.name
    if run.device not in (None, name):
        raise InputError(
            f"{run.path} ran on {shown(run.device)}, the calibrated device is {name}; a run "
            f"corrects the device that it ran on"
        )


def _check_plausible(path: Path, step: RecordedStep) -> None:
    """No factor is beyond what a run on the same, quiet machine could show.

    Raises:
        InputError: one is; the message names it.
    """
    for name in ("forward", "backward", "optimizer", "step", "left"):
        value = getattr(step, name)
        if not 1.0 / MOST_FACTOR <= value <= MOST_FACTOR:
            raise InputError(
                f"{path}: {name} took {value:.3g} times its prediction; allowed: "
                f"{1.0 / MOST_FACTOR:g} to {MOST_FACTOR:g}; calibrate and run on one quiet machine"
            )
