"""The command `collectives`: predicted like nccl-tests, drawn, several at once, and measured."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.errors import InputError
from parsim.sweep_request import Asked, asked, check_together, read_degrees
from parsim.terminal import AsJson, calibrated, note, print_json, progress, show

if TYPE_CHECKING:
    from parsim.cluster.hardware import System
    from parsim.sim.collective_sweep import Sweep, Timings
    from parsim.sim.concurrent import Concurrent
    from parsim.sim.group_layout import Layout


def collectives(  # noqa: PLR0913 - one argument per option
    system: Annotated[
        str | None, typer.Option(metavar="S", help="of `parsim catalog systems`")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="nodes of the system")] = 1,
    ranks: Annotated[
        int | None, typer.Option(help="ranks of a group, spread over the nodes; default: all")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="tp=8,dp=2",
            help="the groups of the last axis of a mesh, innermost axis first; all at once",
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="all_reduce,...", help="which collectives; default: all")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(metavar="8B..8GiB", help="from..to, or a list 1MiB,64MiB")
    ] = None,
    factor: Annotated[
        int | None, typer.Option(min=2, help="between sizes of a range; 2, with --measure 4")
    ] = None,
    algorithm: Annotated[
        str | None, typer.Option(help="force ring, tree, nvls, ... as NCCL_ALGO does")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="force LL, LL128 or Simple as NCCL_PROTO does")
    ] = None,
    concurrent: Annotated[
        int | None, typer.Option(metavar="N", help="groups that run at once, alone and together")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="run them on this machine too (needs torch)")
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(help="cpu or cuda to measure on; or a file of `parsim calibrate`"),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(min=1.0, help="seconds that a measurement may take in all")
    ] = 30.0,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="picture by size: .png or .svg")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="what each prediction rests on")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict collectives by size as nccl-tests prints them, alone and several groups at once."""
    began = time.time()
    chosen = asked(kind, sizes, factor, algorithm, protocol, measure=measure)
    check_together(concurrent, group, ranks, chosen, measure=measure, nodes=nodes)
    if output is not None:
        from parsim.report.collective_curves import check_picture

        check_picture(output)
    here = _hardware(device) if measure else None
    found_system = _system(system, device, here)
    layout = _layout(found_system, nodes, ranks, group, concurrent, here)
    found = _predict(layout, chosen)
    said, measured = "", None
    if here is not None:
        measured = _measure(layout, chosen, here, until=began + time_limit)
        found = found.beside(_times(measured, groups=1))
        said = _conditions(measured)
    both = _together(found, chosen, measured) if len(layout.groups) > 1 else None
    if output is not None:
        from parsim.report.collective_curves import draw_collectives

        draw_collectives(found, output, note=said, both=both)
        note(f"picture written to {output}")
    _tell(found, both, measured, said, verbose=verbose, as_json=as_json)


def _hardware(device: str | None) -> dict[str, Any]:
    from parsim.measuring import collectives_hardware

    return collectives_hardware(None if device is None or _is_file(device) else device)


def _is_file(device: str) -> bool:
    return Path(device).suffix in (".yaml", ".yml")


def _system(name: str | None, device: str | None, here: dict[str, Any] | None) -> System:
    """The system that is named, else the calibrated file's, else this machine's."""
    from parsim.cluster.reader import load_catalog

    if device is not None and not _is_file(device) and here is None:
        raise InputError(
            f"--device {device}: without --measure it must be a file of `parsim calibrate` (.yaml)"
        )
    file = Path(device) if device is not None and _is_file(device) else None
    catalog = load_catalog([file] if file else [])
    if name is not None:
        return catalog.system(name)
    if file is not None:
        own = calibrated(file)
        if "cluster.system" not in own:
            raise InputError(
                f"{file} holds no links: it was calibrated on one rank; name a --system"
            )
        return catalog.system(own["cluster.system"])
    if here is None:
        raise InputError("name a --system (see `parsim catalog systems`), or use --measure")
    if here["system"] is None:
        raise InputError(
            f"no system of the catalog has the GPU {here['hardware']}; name the nearest one with "
            f"--system, or calibrate and use --device FILE"
        )
    return catalog.system(here["system"])


def _layout(system: System, nodes: int, ranks: int | None, group: str | None,
            at_once: int | None, here: dict[str, Any] | None) -> Layout:  # fmt: skip
    from parsim.sim.group_layout import axis_layout, spread_layout

    if group is not None:
        return axis_layout(system, nodes, read_degrees(group))
    if here is not None:
        if (system.library == "gloo") != (here["backend"] == "gloo"):
            raise InputError(
                f"--system {system.id} uses {system.library}, this machine {here['backend']}; "
                f"leave out --system to predict this machine, or --measure"
            )
        if here["most_ranks"] < 2:
            raise InputError(
                f"--measure: a collective needs two ranks, and this machine has one "
                f"{here['hardware']}; use --device cpu"
            )
        usual = max(here["count"], 2)
        system = replace(system, devices_per_node=usual)
        if ranks is None:
            ranks = 2 if here["kind"] == "cpu" else usual
    return spread_layout(system, nodes, ranks, at_once or 1)


def _predict(layout: Layout, chosen: Asked) -> Sweep:
    from parsim.sim.collective_sweep import COLLECTIVES, able_kinds, sweep

    kinds = chosen.kinds
    if kinds is None:
        kinds = able_kinds(layout, chosen.algorithm, chosen.protocol)
        if left := [one for one in COLLECTIVES if one not in kinds]:
            forced = " with ".join(filter(None, (chosen.algorithm, chosen.protocol)))
            note(f"note: {forced} cannot do {', '.join(left)} on this group; left out")
    return sweep(layout, kinds, chosen.sizes, algorithm=chosen.algorithm, protocol=chosen.protocol)


def _measure(
    layout: Layout, chosen: Asked, here: dict[str, Any], *, until: float
) -> dict[str, Any]:
    from parsim.measuring import measure_collectives
    from parsim.sim.collective_sweep import COLLECTIVES

    groups, ranks = len(layout.groups), layout.num_ranks
    if groups * ranks > here["most_ranks"]:
        raise InputError(
            f"{groups} groups of {ranks} ranks are {groups * ranks}, more than the "
            f"{here['most_ranks']} that {here['count']} x {here['kind']} of this machine can run; "
            f"use fewer --ranks or a smaller --concurrent"
        )
    with progress("measuring"):
        return measure_collectives(
            chosen.kinds or COLLECTIVES, chosen.sizes, ranks=ranks, groups=groups,
            device=here["kind"], until=until,
        )  # fmt: skip


def _times(measured: dict[str, Any], *, groups: int) -> Timings:
    return {
        (row["collective"], row["bytes"]): (row["time_s"], row["mad_s"])
        for row in measured["rows"]
        if row["groups"] == groups
    }


def _conditions(measured: dict[str, Any]) -> str:
    load = measured["load_before"]
    busy = "" if load is None else f", load {load:.1f} on {measured['count']} before"
    shared = ", oversubscribed" if measured["oversubscribed"] else ""
    return (
        f"measured {measured['date']}: {measured['world_size']} ranks on {measured['hardware']}, "
        f"{measured['backend']} of torch {measured['torch']}{busy}{shared}"
    )


def _together(found: Sweep, chosen: Asked, measured: dict[str, Any] | None) -> Concurrent:
    from parsim.sim.concurrent import together

    both = together(found, algorithm=chosen.algorithm, protocol=chosen.protocol)
    if measured is None:
        return both
    return both.beside(_times(measured, groups=len(both.layout.groups)))


def _tell(found: Sweep, both: Concurrent | None, measured: dict[str, Any] | None, said: str, *,
          verbose: bool, as_json: bool) -> None:  # fmt: skip
    if measured is not None:
        for left in measured["left_out"]:
            note(f"note: {left}")
    if as_json:
        more: dict[str, Any] = {} if both is None else {"concurrent": both.to_json()}
        more |= {} if measured is None else {"measurement": measured}
        print_json({**found.to_json(), **more})
        return
    from parsim.report.collective_table import concurrent_view, sweep_view

    show(sweep_view(found, verbose=verbose))
    if both is not None:
        show(concurrent_view(both))
    if said:
        note(said)
