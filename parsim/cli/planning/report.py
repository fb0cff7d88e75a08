"""`parsim report`: one page about a scenario, to click through and to send to others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.contention import simulate_shared_links
from parsim.cli.planning.search import Top
from parsim.cli.terminal import (
    CalibratedDevice,
    DevicePrice,
    Overrides,
    ScenarioPath,
    load,
    note,
    note_memory,
    note_price,
    progress,
)
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.planner.result import SearchResult
    from parsim.planner.why import Sensitivity
    from parsim.report.page.answer import Answer
    from parsim.scenario import Scenario

Output = Annotated[Path, typer.Option("-o", "--output", help="the page: .html")]
Depends = Annotated[
    bool, typer.Option("--why", help="also what the best plan depends on: searches several times")
]


def report(
    scenario: ScenarioPath,
    output: Output,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    top: Top = 10,
    price: DevicePrice = None,
    depends: Depends = False,
) -> None:
    """Write one page: the plan's step, memory and cost, how sure, and the plans beside it."""
    from parsim.report.page.answer import answer_page
    from parsim.report.writing import check_other, check_writable, write_text

    if output.suffix != ".html":
        raise InputError(f"{output}: a report is a page; allowed: .html")
    check_other(output, scenario)
    loaded = load(scenario, overrides, device, price)
    note_price(price, loaded)
    check_writable(output)
    answer = _answer(loaded, top, depends)
    note_memory(answer.prediction)
    with progress("drawing"):
        write_text(output, answer_page(answer))
    note(f"report written to {output}")


def _answer(loaded: Scenario, top: int, depends: bool) -> Answer:
    """Search, then predict the scenario's plan or the best one."""
    from parsim import api
    from parsim.report.page.answer import Answer
    from parsim.scenario import scenario_text
    from parsim.training_run.training_run import predicted_run
    from parsim.validation.evidence import cited

    ranked = _search(loaded, top)
    plan = loaded.plan or ranked.plans[0].plan
    prediction = api.simulate(loaded, plan)
    links = simulate_shared_links(replace(loaded, plan=plan)) if loaded.needs_links else None
    return Answer(
        title=f"{loaded.name}: {loaded.job.model.name} on {loaded.job.cluster.words}",
        prediction=prediction,
        ranked=ranked,
        stated=loaded.plan is not None,
        evidence=cited(loaded.job),
        scenario_text=scenario_text(loaded, plan),
        run=predicted_run(loaded.job, loaded.goal, prediction, links.slowdown if links else 1.0),
        sensitivity=_sensitivity(loaded) if depends else None,
        links=links,
    )


def _search(loaded: Scenario, top: int) -> SearchResult:
    from parsim import api

    with progress("evaluating plans") as step:
        return api.search(loaded, top=top, progress=step, sighted=step.sighted)


def _sensitivity(loaded: Scenario) -> Sensitivity:
    from parsim.planner.why import sensitivity

    with progress("searching after each change") as step:
        return sensitivity(loaded.job, loaded.spec, loaded.plan_space(), progress=step)
