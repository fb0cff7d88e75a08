"""`parsim search`: the best of all legal plans of a scenario, on one or several cluster sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.planning.choice import choice_request, choose_size
from parsim.cli.terminal import (
    AsJson,
    CalibratedDevice,
    DevicePrice,
    ScenarioPath,
    SearchOverrides,
    load,
    note,
    note_price,
    print_json,
    progress,
    show,
)
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.launch.measured_plans import MeasureRequest
    from parsim.plan import Plan
    from parsim.planner.contended import ContendedOrder
    from parsim.planner.measured import MeasuredPlans
    from parsim.planner.result import SearchResult
    from parsim.scenario import Scenario

Top = Annotated[int, typer.Option(min=1, max=10**6, help="how many plans to print")]
PlanOutput = Annotated[Path | None, typer.Option(help="write the best plan as a scenario file")]
TimeLimit = Annotated[
    float | None, typer.Option(min=0.0, help="stop after so many seconds and print the best so far")
]
BestContended = Annotated[
    bool,
    typer.Option("--contention", help="run the best 5 with shared links and compare the order"),
]
NodeCounts = Annotated[
    str | None,
    typer.Option("--nodes", metavar="N,N,...", help="choose among cluster sizes too: 32,64,128"),
]
ObjectiveName = Annotated[
    str | None,
    typer.Option("--objective", help="what to make least: time, cost, energy, memory, devices"),
]
Deadline = Annotated[
    str | None,
    typer.Option(metavar="SPAN", help="longest whole run, with its interruptions: 30d, 12h"),
]
Budget = Annotated[
    float | None, typer.Option(min=0.0, help="most US dollars for the whole run: 2.5e6")
]
Front = Annotated[
    Path | None,
    typer.Option(
        "--front",
        metavar="FILE",
        help="draw all plans that none beats in time, memory and cost: .png .svg",
    ),
]
MeasuredBest = Annotated[
    int | None,
    typer.Option(
        "--measure",
        min=1,
        metavar="K",
        help="run the best K with torch here, or small twins of them, and compare the order",
    ),
]
Unequal = Annotated[
    bool,
    typer.Option("--unequal", help="also pipelines whose stages have their own replicas and tp"),
]
MeasureSteps = Annotated[int, typer.Option(min=1, help="timed steps of each run of --measure")]
MeasureOutput = Annotated[Path, typer.Option(help="folder for the runs of --measure")]


def search(  # noqa: PLR0913  one parameter an option
    scenario: ScenarioPath,
    overrides: SearchOverrides = None,
    device: CalibratedDevice = None,
    top: Top = 10,
    save: PlanOutput = None,
    time_limit: TimeLimit = None,
    contention: BestContended = False,
    price: DevicePrice = None,
    nodes: NodeCounts = None,
    objective: ObjectiveName = None,
    deadline: Deadline = None,
    budget: Budget = None,
    front: Front = None,
    unequal: Unequal = False,
    measure: MeasuredBest = None,
    measure_steps: MeasureSteps = 5,
    measure_out: MeasureOutput = Path("build/measure"),
    as_json: AsJson = False,
) -> None:
    """Find the fastest of all legal plans of a scenario that fit."""
    from parsim.report.writing import check_other, check_writable

    loaded = load(scenario, overrides, device, price, of_search=True)
    note_price(price, loaded)
    if unequal and loaded.space is not None:
        loaded = replace(loaded, space=replace(loaded.space, unequal_stages=True))
    if save is not None:
        check_other(save, *loaded.files)
        check_writable(save)
    if all(option is None for option in (nodes, objective, deadline, budget, front)):
        asked = _measuring(measure, measure_steps, measure_out)
        _search(loaded, top, time_limit, contention, asked, save, as_json)
        return
    if contention or measure is not None:
        option = "--contention" if contention else "--measure"
        raise InputError(f"{option} is for the plans of one cluster; leave the others away")
    if front is not None:
        from parsim.report.picture.saving import check_picture  # matplotlib takes half a second

        check_picture(front)
    request = choice_request(loaded, nodes, objective, deadline, budget)
    request = replace(request, top=top, front=front is not None, time_limit=time_limit)
    _save(*choose_size(loaded, request, front, as_json), save)


def _search(
    loaded: Scenario,
    top: int,
    time_limit: float | None,
    contention: bool,
    asked: MeasureRequest | None,
    save: Path | None,
    as_json: bool,
) -> None:
    """The best plans of the scenario's cluster."""
    if loaded.jitter.slow_ranks:
        note("note: a search takes no rank as slow; parsim simulate has jitter.slow_ranks")
    result = _searched(loaded, max(top, asked.best) if asked else top, time_limit)
    order = _contended(loaded, result) if contention or loaded.needs_links else None
    runs = None if asked is None else _measured(loaded, result, asked)
    if as_json:
        blocks = {"contention": order, "measured": runs}
        more = {name: block.to_json() for name, block in blocks.items() if block is not None}
        print_json({**result.to_json(), **more})
    else:
        _show(loaded, result, order, runs)
    if order is not None and order.warning:
        note(f"warning: {order.warning}")
    _save(loaded, result.plans[0].plan, save)


def _searched(loaded: Scenario, top: int, time_limit: float | None) -> SearchResult:
    """The best plans while nothing contends."""
    from parsim import api

    with progress("evaluating plans") as step:
        return api.search(
            loaded, top=top, progress=step, time_limit=time_limit, sighted=step.sighted
        )


def _contended(loaded: Scenario, result: SearchResult) -> ContendedOrder:
    """The best of them again, on shared links."""
    from parsim.planner.contended import contended_order

    with progress("simulating shared links") as step:
        return contended_order(loaded.job, result, background=loaded.background, progress=step)


def _measuring(best: int | None, steps: int, out: Path) -> MeasureRequest | None:
    """What `--measure` asks for; torch must be here before the search takes its time."""
    if best is None:
        return None
    from parsim.launch.measured_plans import MeasureRequest
    from parsim.launch.ranks import require_torch
    from parsim.report.writing import check_folder

    require_torch("measuring plans")
    check_folder(out)
    return MeasureRequest(best=best, steps=steps, out=out)


def _measured(loaded: Scenario, result: SearchResult, asked: MeasureRequest) -> MeasuredPlans:
    """Run the best plans in turn."""
    from parsim.launch.measured_plans import measure_plans

    plans = [entry.plan for entry in result.plans]
    with progress("running plans") as step:
        return measure_plans(loaded, plans, asked, progress=step)


def _save(loaded: Scenario, plan: Plan, save: Path | None) -> None:
    from parsim.report.writing import write_text
    from parsim.scenario import scenario_text

    if save is not None:
        write_text(save, scenario_text(loaded, plan))
        note(f"best plan written to {save}")


def _show(
    scenario: Scenario,
    result: SearchResult,
    order: ContendedOrder | None,
    runs: MeasuredPlans | None,
) -> None:
    from parsim.report.text.planning.search import measured_view, search_view
    from parsim.validation.evidence import cited

    show(search_view(result, evidence=cited(scenario.job)))
    if order is not None:
        from parsim.report.text.contention import order_view

        show(order_view(order))
    if runs is not None:
        show(measured_view(runs))
