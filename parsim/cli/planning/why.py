"""`parsim why`: what a wish costs or what forbids it, and what the best plan depends on."""

from __future__ import annotations

from typing import Annotated

import typer

from parsim.cli.terminal import (
    AsJson,
    CalibratedDevice,
    ScenarioPath,
    SearchOverrides,
    load,
    print_json,
    progress,
    show,
)

Wish = Annotated[
    str | None,
    typer.Option("--not", metavar="FIELD=VALUE,...", help="why not this? e.g. tp=4,pp=2"),
]


def why(
    scenario: ScenarioPath,
    overrides: SearchOverrides = None,
    device: CalibratedDevice = None,
    wish: Wish = None,
    as_json: AsJson = False,
) -> None:
    """Say why the best plan is not another one (--not), or what it depends on."""
    from parsim.planner.why import read_pins, reasons, sensitivity
    from parsim.report.text.planning.why import reasons_view, sensitivity_view

    pins = None if wish is None else read_pins(wish)
    loaded = load(scenario, overrides, device, of_search=True)
    job, space = loaded.job, loaded.plan_space()
    if pins is None:
        with progress("searching after each change") as step:
            answers = sensitivity(job, loaded.spec, space, progress=step)
        view, document = sensitivity_view(answers), answers.to_json()
    else:
        with progress("evaluating plans") as step:
            told = reasons(job, space, pins, progress=step)
        view, document = reasons_view(told), told.to_json()
    if as_json:
        print_json(document)
    else:
        show(view)
