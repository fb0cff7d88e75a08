"""`parsim check` and `simulate`: what a scenario resolves to, and what its plan takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
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
Seed = Annotated[int, typer.Option(min=0, help="of the steps that differ")]


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
        from parsim.report.text.prediction import resolved_text

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
    from parsim.training_run.training_run import predicted_run
    from parsim.validation.evidence import cited

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
    jitter = _jitter(loaded, jitter_steps, seed)
    links = None if jobs else _contention(loaded, asked=contention, slow=jitter is not None)
    together = simulate_together(jobs) if jobs else None
    run = predicted_run(loaded.job, loaded.goal, prediction, links.slowdown if links else 1.0)
    if as_json:
        blocks = {"training_run": run, "jitter": jitter, "contention": links, "together": together}
        print_json(_document(loaded, prediction, blocks))
    else:
        from parsim.report.text.prediction import prediction_view

        show(prediction_view(prediction, evidence=cited(loaded.job)))
        _show_more(run, links, together, jitter)
    if timeline is not None and prediction.timeline is not None:
        from parsim.report.timeline.files import save_own_form

        save_own_form(prediction.timeline, timeline)
        note(f"timeline written to {timeline}")
    if prediction.fit is Fit.TOO_LARGE:
        from parsim.planner.nearest_miss import shortage_message

        raise NoFeasiblePlan(shortage_message(loaded.job, plan, loaded.memory_margin))


def _document(
    loaded: Scenario, prediction: Prediction, blocks: Mapping[str, Any]
) -> dict[str, Any]:
    """The prediction, what measured runs say of it, and those of the further blocks there are."""
    from parsim.validation.evidence import evidence_of, unseen_of

    more = {name: block.to_json() for name, block in blocks.items() if block is not None}
    rests = {"evidence": evidence_of(loaded.job), "unseen": unseen_of(loaded.job)}
    figures = {name: known and known.to_json() for name, known in rests.items()}
    return {**prediction.to_json(), **figures, **more}


def _show_more(
    run: TrainingRun | None,
    links: Contention | None,
    together: JobsTogether | None,
    jitter: JitterResult | None,
) -> None:
    if run is not None:
        from parsim.report.text.planning.training_run import training_run_view

        show(training_run_view(run, shared=links is not None))
    if together is not None:
        from parsim.report.text.contention import together_view

        show(together_view(together))
    if links is not None:
        from parsim.report.text.contention import contention_view

        show(contention_view(links))
    if jitter is not None:
        from parsim.report.text.jitter import jitter_view

        show(jitter_view(jitter))


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
