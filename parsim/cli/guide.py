"""`parsim guide`: which family of parallel training when."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
from parsim.errors import NoFeasiblePlan

Picture = Annotated[Path | None, typer.Option("-o", "--output", help="picture: .png or .svg")]


def guide(
    scenario: ScenarioPath,
    overrides: Overrides = None,
    device: CalibratedDevice = None,
    output: Picture = None,
    as_json: AsJson = False,
) -> None:
    """Compare one device, DataParallel, DDP, servers, local SGD, ZeRO, tensor, pipeline, hybrid."""
    from parsim.guide.compare import guide as compare

    loaded = load(scenario, overrides, device, makes_plans=True)
    if output is not None:
        from parsim.report.picture.saving import check_picture

        check_picture(output)
    with progress("comparing") as step:
        result = compare(loaded, step)
    if as_json:
        print_json(result.to_json())
    else:
        from parsim.report.text.planning.guide import guide_view

        show(guide_view(result))
    if output is not None:
        from parsim.report.picture.planning.guide import draw_guide

        draw_guide(result, output)
        note(f"picture written to {output}")
    if result.chosen is None:
        raise NoFeasiblePlan("no family fits; parsim search says what would make one fit")
