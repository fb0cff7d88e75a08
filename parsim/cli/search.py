"""`parsim search`: the best of all legal plans of a scenario."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.terminal import (
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
    from parsim.planner.contended import ContendedOrder
    from parsim.planner.result import SearchResult
    from parsim.scenario import Scenario

Top = Annotated[int, typer.Option(min=1, help="how many plans to print")]
PlanOutput = Annotated[Path | None, typer.Option(help="write the best plan as a scenario file")]
TimeLimit = Annotated[
    float | None, typer.Option(min=0.0, help="seconds; then print the best so far")
]
BestContended = Annotated[
    bool,
    typer.Option("--contention", help="run the best 5 with shared links and compare the order"),
]


def search(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    top: Top = 10,
    save: PlanOutput = None,
    time_limit: TimeLimit = None,
    contention: BestContended = False,
    as_json: AsJson = False,
) -> None:
    """Find the fastest of all legal plans of a scenario that fit."""
    from parsim import api
    from parsim.planner.contended import contended_order
    from parsim.report.writing import check_other, check_writable, write_text
    from parsim.scenario import scenario_text

    loaded = load(scenario, overrides, device)
    if save is not None:
        check_other(save, *loaded.files)
        check_writable(save)
    with progress("evaluating plans") as step:
        result = api.search(loaded, top=top, progress=step, time_limit=time_limit)
    order = None
    if contention or loaded.needs_links:
        with progress("simulating shared links") as step:
            background = loaded.background
            order = contended_order(loaded.job, result, background=background, progress=step)
    if as_json:
        more = {} if order is None else {"contention": order.to_json()}
        print_json({**result.to_json(), **more})
    else:
        _show(loaded, result, order)
    if order is not None and order.warning:
        note(f"warning: {order.warning}")
    if save is not None:
        write_text(save, scenario_text(loaded, result.plans[0].plan))
        note(f"best plan written to {save}")


def _show(scenario: Scenario, result: SearchResult, order: ContendedOrder | None) -> None:
    from parsim.report.text.search import search_view
    from parsim.validation.evidence import describe, evidence_of

    evidence = describe(evidence_of(scenario.job), mixed=scenario.job.mixed)
    show(search_view(result, evidence=evidence))
    if order is not None:
        from parsim.report.text.contention import order_view

        show(order_view(order))
