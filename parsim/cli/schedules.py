"""`parsim schedules`: all pipeline schedules of one shape, as a table and as one picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.terminal import AsJson, Overrides, load, note, print_json, progress, show
from parsim.errors import InputError, shown

if TYPE_CHECKING:
    from parsim.sim.schedules.rows import ScheduleTable
    from parsim.sim.schedules.timed import UnitTimes

Ranks = Annotated[int | None, typer.Option("--pp", help="pipeline ranks; default 4")]
Microbatches = Annotated[
    int | None, typer.Option("-m", "--num-microbatches", help="micro-batches; default 2 x pp")
]
Chunks = Annotated[
    int | None,
    typer.Option(
        "--v",
        min=2,
        help="chunks a rank, for schedules that may have any number; default 2, those of the "
        "plan for its own schedule",
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option(metavar="F,I,W[,MESSAGE]", help="lengths of a rank's actions; default 1,1,1,0"),
]
OfPlan = Annotated[
    Path | None, typer.Option(metavar="SCENARIO", help="in seconds and GiB of this plan")
]
Only = Annotated[
    str | None,
    typer.Option(metavar="A,B,..", help="these schedules alone (with --scenario also auto)"),
]
Picture = Annotated[
    Path | None, typer.Option("-o", "--output", help="picture of all staircases: .png or .svg")
]
Auto = Annotated[
    Path | None,
    typer.Option(metavar="FILE.csv", help="with --scenario: search the best order that fits"),
]
Seconds = Annotated[
    float | None, typer.Option("--time-limit", help="with --auto: seconds for each of two searches")
]
Until = Annotated[float | None, typer.Option(help="end of the picture, in units or seconds")]


def schedules(  # noqa: PLR0913  one parameter an option
    pp: Ranks = None,
    num_microbatches: Microbatches = None,
    v: Chunks = None,
    times: Lengths = None,
    scenario: OfPlan = None,
    overrides: Overrides = None,
    only: Only = None,
    output: Picture = None,
    until: Until = None,
    auto: Auto = None,
    time_limit: Seconds = None,
    as_json: AsJson = False,
) -> None:
    """Compare all pipeline schedules: time, bubble, memory, messages, and all their staircases."""
    names = [name.strip() for name in only.split(",")] if only else []
    _check_picture(output, until)
    if time_limit is not None and (auto is None or not 0.0 < time_limit < float("inf")):
        raise InputError(f"--time-limit {time_limit:g} must be above 0 and stand beside --auto")
    if auto is not None:
        if scenario is None:
            raise InputError("--auto orders the stages of a plan; give one with --scenario")
        _check_alone(auto, output, only)
        _auto(scenario, overrides, auto, time_limit, as_json=as_json)
        return
    if scenario is None:
        compared = _in_units(pp, num_microbatches, v, times, names, overrides)
    else:
        if pp is not None or num_microbatches is not None or times is not None:
            raise InputError(
                "--pp, -m and --times are those of the scenario's plan; change it with --set, "
                "e.g. --set plan.pp=8"
            )
        compared = _of_plan(scenario, overrides, v, names)
    if output is not None:
        _draw(compared, output, until)
    _print(compared, as_json=as_json)


def _check_picture(output: Path | None, until: float | None) -> None:
    """Refuse a picture that cannot be written, and the end of one that is not asked for."""
    if output is not None:
        from parsim.report.picture.saving import check_picture

        check_picture(output)
    elif until is not None:
        raise InputError(f"--until {until:g} ends a picture; give its file with -o x.png")


def _check_alone(auto: Path, output: Path | None, only: str | None) -> None:
    """Refuse what an order that is written to a file has no use for."""
    given = "--output" if output is not None else "--only" if only is not None else ""
    if given:
        raise InputError(
            f"{given} stands beside no --auto, which writes one order; draw it with parsim "
            f"timeline SCENARIO --set plan.schedule={auto} -o x.png, or beside others with "
            f"parsim schedules --scenario SCENARIO --only auto,1f1b -o x.png"
        )


def _draw(compared: ScheduleTable, output: Path, until: float | None) -> None:
    """Draw all staircases."""
    from parsim.report.picture.staircases import draw_staircases

    draw_staircases(compared, path=output, until=until)
    note(f"picture written to {output}")


def _auto(
    scenario: Path,
    overrides: list[str] | None,
    file: Path,
    time_limit: float | None,
    *,
    as_json: bool,
) -> None:
    """Search the best order, write it, and say how good it is."""
    from parsim.report.text.schedules import auto_view
    from parsim.report.writing import check_other, check_writable, write_text
    from parsim.sim.orders.auto import auto_schedule

    if file.suffix != ".csv":
        raise InputError(f"--auto {file}: a schedule's file ends with .csv, e.g. --auto mine.csv")
    loaded = load(scenario, overrides)
    check_other(file, *loaded.files)
    check_writable(file)
    with progress("searching orders"):
        margin = loaded.memory_margin
        auto = auto_schedule(loaded.job, loaded.fixed_plan(), margin, time_limit)
    write_text(file, auto.plan.actions or "")
    if as_json:
        print_json({"schema_version": 1, "kind": "auto_schedule", **auto.to_json()})
    else:
        show(auto_view(auto))
    cut = ",".join(map(str, auto.plan.stage_layers or ()))
    cut = f" --set 'plan.stage_layers=[{cut}]'" if cut else ""
    chunks = "" if auto.plan.stages else "--set plan.v=1 "
    note(f"schedule written to {file}; use it: {chunks}--set plan.schedule={file}{cut}")


def _print(compared: ScheduleTable, *, as_json: bool) -> None:
    if as_json:
        print_json(compared.to_json())
        return
    from parsim.report.text.schedules import schedules_view

    show(schedules_view(compared))


def _in_units(
    pp: int | None,
    num_microbatches: int | None,
    v: int | None,
    times: str | None,
    only: list[str],
    overrides: list[str] | None,
) -> ScheduleTable:
    from parsim.sim.schedules.units import schedule_table

    if overrides:
        raise InputError("--set changes a scenario; give one with --scenario")
    ranks = 4 if pp is None else pp
    return schedule_table(
        ranks,
        2 * ranks if num_microbatches is None else num_microbatches,
        v=2 if v is None else v,
        times=_lengths(times),
        only=only,
    )


def _lengths(text: str | None) -> UnitTimes:
    from parsim.sim.schedules.timed import UnitTimes

    if text is None:
        return UnitTimes()
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (3, 4):
        raise InputError(
            f"--times '{shown(text)}' must be three or four numbers F,I,W[,MESSAGE], e.g. 1,1.2,0.8"
        )
    return UnitTimes(*values)


def _of_plan(
    scenario: Path, overrides: list[str] | None, v: int | None, only: list[str]
) -> ScheduleTable:
    from parsim.sim.schedules.planned import planned_table

    loaded = load(scenario, overrides)
    with progress("evaluating schedules"):
        return planned_table(
            loaded.job, loaded.fixed_plan(), v=v, only=only, memory_margin=loaded.memory_margin
        )
