"""`parsim check` and `simulate`: what a scenario resolves to, and what its plan takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli_contention import Beside, On, contended, placed_jobs, simulate_together
from parsim.errors import InputError, NoFeasiblePlan
from parsim.terminal import (
    AsJson,
    CalibratedDevice,
    Overrides,
    ScenarioPath,
    load,
    note,
    print_json,
    progress,
    show,
)

if TYPE_CHECKING:
    from parsim.scenario import Scenario
    from parsim.sim.contention import Contention
    from parsim.sim.jobs_together import JobsTogether
    from parsim.sim.monte_carlo import JitterResult


def check(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    write_schedule: Annotated[
        Path | None, typer.Option(help="write the plan's actions, for plan.schedule: .csv")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read a scenario and say what it resolves to, or file:line:column of what is wrong."""
    from parsim.report.resolved import resolved, resolved_text

    found = load(scenario, overrides, device)
    if as_json:
        print_json(resolved(found))
    else:
        sys.stdout.write(resolved_text(found, str(scenario)))
    if write_schedule is not None:
        from parsim.report.schedule import save_schedule

        save_schedule(found.fixed_plan(), write_schedule, scenario)
        note(f"schedule written to {write_schedule}")


def simulate(  # noqa: PLR0913  one parameter an option
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    events: Annotated[
        bool, typer.Option("--events", help="run the discrete-event tier too and compare")
    ] = False,
    timeline: Annotated[
        Path | None, typer.Option(help="save the timeline, for compare and timeline: .json")
    ] = None,
    contention: Annotated[
        bool, typer.Option("--contention", help="also with links that all traffic shares (tier C)")
    ] = False,
    beside: Beside = None,
    on: On = None,
    jitter_steps: Annotated[
        int | None,
        typer.Option(min=1, help="simulate so many steps with ranks that differ: mean, p50, p99"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="of the steps that differ")] = 0,
    as_json: AsJson = False,
) -> None:
    """Predict step time, bubble, memory and utilisation of a scenario's plan."""
    from parsim.report.save import check_own_form, save_own_form
    from parsim.search.relax import shortage_message
    from parsim.sim import simulate as predict
    from parsim.validation.evidence import describe, evidence_of

    found = load(scenario, overrides, device)
    plan = found.fixed_plan()
    if timeline is not None:
        check_own_form(timeline, scenario)
    prediction = predict(
        found.job, plan, tier="events" if events else "evaluate", timeline=timeline is not None
    )
    evidence = evidence_of(found.job)
    jobs = placed_jobs(found, on, beside)
    late = _jitter(found, jitter_steps, seed)
    shared = _contention(found, asked=contention, slow=late is not None) if not jobs else None
    both = simulate_together(jobs) if jobs else None
    if as_json:
        more = {} if late is None else {"jitter": late.to_json()}
        more |= {} if shared is None else {"contention": shared.to_json()}
        more |= {} if both is None else {"together": both.to_json()}
        print_json({**prediction.to_json(), "evidence": evidence and evidence.to_json(), **more})
    else:
        from parsim.report.text import prediction_view

        said = describe(evidence, mixed=found.job.mixed)
        show(prediction_view(prediction, usable=prediction.usable, evidence=said))
        _show_more(shared, both, late)
    if timeline is not None and prediction.timeline is not None:
        save_own_form(prediction.timeline, timeline)
        note(f"timeline written to {timeline}")
    if not prediction.fits():
        raise NoFeasiblePlan(shortage_message(found.job, plan))


def _show_more(
    shared: Contention | None, both: JobsTogether | None, late: JitterResult | None
) -> None:
    if both is not None:
        from parsim.report.together import together_view

        show(together_view(both))
    if shared is not None:
        from parsim.report.contention import contention_view

        show(contention_view(shared))
    if late is not None:
        from parsim.report.jitter import jitter_view

        show(jitter_view(late))


def _contention(found: Scenario, *, asked: bool, slow: bool) -> Contention | None:
    """Tier C where it is asked for, and where tier B alone would leave out what was."""
    if asked or found.needs_links:
        return contended(found)
    if not slow or not found.jitter.slow_ranks:
        return None
    try:
        return contended(found)
    except InputError as error:  # the steps with slow ranks were what was asked for
        note(f"note: which links slow ranks leave full is not simulated: {error}")
        return None


def _jitter(found: Scenario, steps: int | None, seed: int) -> JitterResult | None:
    if steps is None:
        if found.jitter.stated:
            note("note: the jitter block is left aside; --jitter-steps 1000 simulates it")
        return None
    from parsim.sim.monte_carlo import simulate_jitter

    with progress("simulating steps") as step:
        return simulate_jitter(
            found.job, found.fixed_plan(), found.jitter, steps=steps, seed=seed, progress=step
        )
