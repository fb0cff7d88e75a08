"""`parsim search`: every legal plan of a scenario, ranked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from parsim.search.contended import ContendedOrder
    from parsim.search.search import SearchResult


def search(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    top: Annotated[int, typer.Option(min=1, help="how many plans to print")] = 10,
    save: Annotated[
        Path | None, typer.Option(help="write the best plan as a scenario file")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.0, help="seconds; then print the best so far")
    ] = None,
    contention: Annotated[
        bool,
        typer.Option("--contention", help="run the best 5 with shared links and compare the order"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate every legal plan of a scenario and rank those that fit."""
    from parsim.report.save import check_writable, write_text
    from parsim.scenario import scenario_text
    from parsim.search.search import search as find
    from parsim.validation.evidence import describe, evidence_of

    found = load(scenario, overrides, device)
    evidence = evidence_of(found.job)
    space = found.plan_space()
    if save is not None:
        check_writable(save)
    with progress("evaluating plans") as step:
        result = find(found.job, space, top=top, progress=step, time_limit=time_limit)
    shared = _best_contended(found, result) if contention or found.needs_links else None
    if as_json:
        more = {} if shared is None else {"contention": shared.to_json()}
        print_json({**result.to_json(), **more})
    else:
        from parsim.report.text import search_view

        share = 1.0 - space.memory_margin
        limit, *others = (one.usable_memory * share for one in found.job.cluster.devices)
        said = describe(evidence, mixed=found.job.mixed)
        show(search_view(result, usable=limit, others=others, evidence=said))
        if shared is not None:
            from parsim.report.contention import order_view

            show(order_view(shared))
    if shared is not None and shared.warning:
        note(f"warning: {shared.warning}")
    if save is not None:
        write_text(save, scenario_text(found, result.plans[0].plan))
        note(f"best plan written to {save}")


def _best_contended(found: Scenario, result: SearchResult) -> ContendedOrder:
    from parsim.search.contended import contended_order

    with progress("simulating shared links") as step:
        return contended_order(found.job, result, background=found.background, progress=step)
