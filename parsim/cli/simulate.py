"""`parsim check` and `simulate`: what a scenario resolves to, and what its plan takes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.cli.contention import (
    Beside,
    Contended,
    On,
    placed_jobs,
    simulate_shared_links,
    simulate_together,
)
from parsim.cli.terminal import (
    AsJson,
    CalibratedDevice,
    DevicePrice,
    Overrides,
    ScenarioPath,
    load,
    note,
    note_price,
    print_json,
    progress,
    show,
)
from parsim.errors import InputError, NoFeasiblePlan

if TYPE_CHECKING:
    from parsim.cli.contention import PlacedJob
    from parsim.scenario import Scenario
    from parsim.sim import Prediction
    from parsim.sim.contention.contention import Contention
    from parsim.sim.contention.jobs_together import JobsTogether
    from parsim.sim.lateness.monte_carlo import JitterResult
    from parsim.training_run.training_run import TrainingRun

ScheduleOutput = Annotated[
    Path | None, typer.Option(help="write the plan's actions, for plan.schedule: .csv")
]
Events = Annotated[
    bool, typer.Option("--events", help="run the discrete-event tier too and compare")
]
TimelineOutput = Annotated[
    Path | None, typer.Option(help="save the timeline, for compare and timeline: .json")
]
JitterSteps = Annotated[
    int | None,
    typer.Option(min=1, help="simulate so many steps with ranks that differ: mean, p50, p99"),
]
Seed = Annotated[int, typer.Option(min=0, help="seed of --jitter-steps")]


def check(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    write_schedule: ScheduleOutput = None,
    as_json: AsJson = False,
) -> None:
    """Read a scenario and say what it resolves to, or file:line:column of what is wrong."""
    resolved = load(scenario, overrides, device)
    if as_json:
        print_json(resolved.to_json())
    else:
        from parsim.report.text.resolved import resolved_text

        sys.stdout.write(resolved_text(resolved))
    if write_schedule is not None:
        from parsim.report.timeline.files import save_schedule

        save_schedule(resolved.fixed_plan(), write_schedule, scenario)
        note(f"schedule written to {write_schedule}")


def simulate(  # noqa: PLR0913  one parameter an option
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    events: Events = False,
    timeline: TimelineOutput = None,
    contention: Contended = False,
    beside: Beside = None,
    on: On = None,
    jitter_steps: JitterSteps = None,
    seed: Seed = 0,
    price: DevicePrice = None,
    as_json: AsJson = False,
) -> None:
    """Predict step time, bubble, memory and utilisation of a scenario's plan."""
    from parsim import api
    from parsim.sim.confidence.memory_fit import Fit

    loaded = load(scenario, overrides, device, price)
    plan = loaded.fixed_plan()
    if timeline is not None:
        from parsim.report.timeline.files import check_own_form

        check_own_form(timeline, scenario)
    prediction = api.simulate(
        loaded, timeline=timeline is not None, tier="events" if events else "evaluate"
    )
    note_price(price, loaded)
    jobs = placed_jobs(loaded, on, beside)
    note_spreads(loaded, prediction, drawn=jitter_steps is not None)
    further = _further(loaded, prediction, jobs, jitter_steps, seed, contention)
    if as_json:
        print_json(_document(loaded, prediction, further))
    else:
        _show(loaded, prediction, further)
    _save_timeline(prediction, timeline)
    if prediction.fit is Fit.TOO_LARGE:
        from parsim.planner.nearest_miss import shortage_message

        raise NoFeasiblePlan(shortage_message(loaded.job, plan, loaded.memory_margin))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Further:
    """What goes with the prediction where the scenario or an option asks for it."""

    training_run: TrainingRun | None
    jitter: JitterResult | None
    contention: Contention | None
    together: JobsTogether | None

    def to_json(self) -> dict[str, Any]:
        """The blocks that there are, by name."""
        blocks = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: block.to_json() for name, block in blocks.items() if block is not None}


def _further(
    loaded: Scenario,
    prediction: Prediction,
    jobs: Sequence[PlacedJob],
    jitter_steps: int | None,
    seed: int,
    contention: bool,
) -> _Further:
    """Steps with ranks that differ, on shared links, with other jobs; then the whole run."""
    from parsim.training_run.training_run import predicted_run

    jitter = _jitter(loaded, jitter_steps, seed)
    links = None if jobs else _contention(loaded, asked=contention, slow=jitter is not None)
    together = simulate_together(jobs) if jobs else None
    slowdown = links.slowdown if links else 1.0
    run = predicted_run(loaded.job, loaded.goal, prediction, slowdown)
    return _Further(training_run=run, jitter=jitter, contention=links, together=together)


def _document(loaded: Scenario, prediction: Prediction, further: _Further) -> dict[str, Any]:
    """The prediction, what measured runs say of it, and the further blocks there are."""
    from parsim.validation.evidence import evidence_of, unseen_of

    rests = {"evidence": evidence_of(loaded.job), "unseen": unseen_of(loaded.job)}
    figures = {name: known and known.to_json() for name, known in rests.items()}
    return {**prediction.to_json(), **figures, **further.to_json()}


def _show(loaded: Scenario, prediction: Prediction, further: _Further) -> None:
    """Print the prediction and what goes with it."""
    from parsim.report.text.prediction import prediction_view
    from parsim.validation.evidence import cited

    show(prediction_view(prediction, evidence=cited(loaded.job)))
    if further.training_run is not None:
        from parsim.report.text.planning.training_run import training_run_view

        show(training_run_view(further.training_run, shared=further.contention is not None))
    if further.together is not None:
        from parsim.report.text.contention import together_view

        show(together_view(further.together))
    if further.contention is not None:
        from parsim.report.text.contention import contention_view

        show(contention_view(further.contention))
    if further.jitter is not None:
        from parsim.report.text.jitter import jitter_view

        show(jitter_view(further.jitter))


def _save_timeline(prediction: Prediction, file: Path | None) -> None:
    """Write the step's timeline where `--timeline` says."""
    if file is not None and prediction.timeline is not None:
        from parsim.report.timeline.files import save_own_form

        save_own_form(prediction.timeline, file)
        note(f"timeline written to {file}")


def _contention(scenario: Scenario, *, asked: bool, slow: bool) -> Contention | None:
    """Tier C where it is asked for, and where tier B alone would leave out what was."""
    if asked or scenario.needs_links:
        return simulate_shared_links(scenario)
    if not slow or not scenario.jitter.slow_ranks:
        return None
    try:
        return simulate_shared_links(scenario)
    except InputError as error:  # the steps with slow ranks were what was asked for
        note(f"note: which links slow ranks leave full is not simulated: {error}")
        return None


def note_spreads(scenario: Scenario, prediction: Prediction, *, drawn: bool) -> None:
    """Say that the step has no spreads, where some are stated and neither it nor draws have them.

    Slow ranks are in every step; the rest of the block only where it matters who comes first.
    """
    events = prediction.strategy is not None and prediction.strategy.tier == "events"
    if scenario.jitter.stated - {"slow_ranks"} and not events and not drawn:
        note("note: spreads of the jitter block are left aside; --jitter-steps 1000 simulates them")


def _jitter(scenario: Scenario, steps: int | None, seed: int) -> JitterResult | None:
    if steps is None:
        return None
    from parsim.sim.data_parallel.late import jitter_of

    job, plan = scenario.job, scenario.fixed_plan()
    with progress("simulating steps") as step:
        return jitter_of(job, plan, scenario.jitter, steps=steps, seed=seed, progress=step)
