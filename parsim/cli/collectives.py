"""The command `collectives`: predicted like nccl-tests, drawn, several at once, and measured."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.cli.sweep_request import SweepRequest, check_together, read_degrees, read_request
from parsim.cli.terminal import AsJson, calibrated, note, print_json, progress, show
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.cluster.hardware import System
    from parsim.sim.benchmark.collective_sweep import Sweep, Timings
    from parsim.sim.benchmark.concurrent import Concurrent
    from parsim.sim.benchmark.group_layout import GroupLayout

SystemName = Annotated[str | None, typer.Option(metavar="S", help="of `parsim catalog systems`")]
Nodes = Annotated[int, typer.Option(min=1, help="nodes of the system")]
Ranks = Annotated[
    int | None, typer.Option(help="ranks of a group, spread over the nodes; default: all")
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="tp=8,dp=2",
        help="the groups of the last axis of a mesh, innermost axis first; all at once",
    ),
]
Kinds = Annotated[
    str | None, typer.Option(metavar="all_reduce,...", help="which collectives; default: all")
]
Sizes = Annotated[
    str | None, typer.Option(metavar="8B..8GiB", help="from..to, or a list 1MiB,64MiB")
]
Factor = Annotated[
    int | None, typer.Option(min=2, help="between sizes of a range; 2, with --measure 4")
]
ForcedAlgorithm = Annotated[
    str | None, typer.Option(help="force ring, tree, nvls, ... as NCCL_ALGO does")
]
ForcedProtocol = Annotated[
    str | None, typer.Option(help="force LL, LL128 or Simple as NCCL_PROTO does")
]
AtOnce = Annotated[
    int | None, typer.Option(metavar="N", help="groups that run at once, alone and together")
]
Measure = Annotated[
    bool, typer.Option("--measure", help="run them on this machine too (needs torch)")
]
MeasuredDevice = Annotated[
    str | None,
    typer.Option(help="cpu or cuda to measure on; or a file of `parsim calibrate`"),
]
TimeLimit = Annotated[
    float, typer.Option(min=1.0, help="seconds that a measurement may take in all")
]
Picture = Annotated[
    Path | None, typer.Option("-o", "--output", help="picture by size: .png or .svg")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="what each prediction rests on")]


def collectives(  # noqa: PLR0913 - one argument per option
    system: SystemName = None,
    nodes: Nodes = 1,
    ranks: Ranks = None,
    group: Group = None,
    kind: Kinds = None,
    sizes: Sizes = None,
    factor: Factor = None,
    algorithm: ForcedAlgorithm = None,
    protocol: ForcedProtocol = None,
    concurrent: AtOnce = None,
    measure: Measure = False,
    device: MeasuredDevice = None,
    time_limit: TimeLimit = 30.0,
    output: Picture = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Predict collectives by size as nccl-tests prints them, alone and several groups at once."""
    from parsim.launch.measuring import collectives_hardware
    from parsim.report.text.collectives import concurrent_view, sweep_view

    began = time.time()
    request = read_request(kind, sizes, factor, algorithm, protocol, measure=measure)
    check_together(concurrent, group, ranks, request, measure=measure, nodes=nodes)
    if output is not None:
        from parsim.report.picture.saving import check_picture

        check_picture(output)
    kind_of_device = None if _calibrated_file(device) else device
    machine = collectives_hardware(kind_of_device) if measure else None
    layout = _layout(_system(system, device, machine), nodes, ranks, group, concurrent, machine)
    sweep = _predict(layout, request)
    measured, conditions = None, ""
    if machine is not None:
        measured = _measure(layout, request, machine, until=began + time_limit)
        conditions = _conditions(measured)
        sweep = sweep.beside(_times(measured, groups=1))
    several = _together(sweep, request, measured) if len(layout.groups) > 1 else None
    if output is not None:
        from parsim.report.picture.collective_curves import draw_collectives

        draw_collectives(sweep, output, remark=conditions, concurrent=several)
        note(f"picture written to {output}")
    for left in measured["left_out"] if measured else ():
        note(f"note: {left}")
    if as_json:
        blocks = {"concurrent": several and several.to_json(), "measurement": measured}
        more = {name: block for name, block in blocks.items() if block is not None}
        print_json({**sweep.to_json(), **more})
        return
    show(sweep_view(sweep, verbose=verbose))
    if several is not None:
        show(concurrent_view(several))
    if conditions:
        note(conditions)


def _calibrated_file(device: str | None) -> Path | None:
    """The file of `parsim calibrate` that --device names, if it names one and no kind."""
    file = Path(device or "")
    return file if file.suffix in (".yaml", ".yml") else None


def _system(name: str | None, device: str | None, machine: dict[str, Any] | None) -> System:
    """The system that is named, else the calibrated file's, else this machine's."""
    from parsim.cluster.reader import load_catalog

    file = _calibrated_file(device)
    if device is not None and file is None and machine is None:
        raise InputError(
            f"--device {device}: without --measure it must be a file of `parsim calibrate` (.yaml)"
        )
    catalog = load_catalog([file] if file else [])
    if name is not None:
        return catalog.system(name)
    if file is not None:
        name = calibrated(file).get("cluster.system")
        if name is None:
            raise InputError(
                f"{file} holds no links: it was calibrated on one rank; name a --system"
            )
        return catalog.system(name)
    if machine is None:
        raise InputError("name a --system (see `parsim catalog systems`), or use --measure")
    if machine["system"] is None:
        raise InputError(
            f"no system of the catalog has the GPU {machine['hardware']}; name the nearest one "
            f"with --system, or calibrate and use --device FILE"
        )
    return catalog.system(machine["system"])


def _layout(
    system: System,
    nodes: int,
    ranks: int | None,
    group: str | None,
    at_once: int | None,
    machine: dict[str, Any] | None,
) -> GroupLayout:
    from parsim.sim.benchmark.group_layout import axis_layout, spread_layout

    if group is not None:
        return axis_layout(system, nodes, read_degrees(group))
    if machine is not None:
        system, usual = _on_machine(system, machine)
        ranks = usual if ranks is None else ranks
    return spread_layout(system, nodes, ranks, at_once or 1)


def _on_machine(system: System, machine: dict[str, Any]) -> tuple[System, int]:
    """The system with as many devices as this machine has, and how many ranks are usual on it."""
    if (system.library == "gloo") != (machine["backend"] == "gloo"):
        raise InputError(
            f"--system {system.id} uses {system.library}, this machine {machine['backend']}; "
            f"leave out --system to predict this machine, or --measure"
        )
    if machine["most_ranks"] < 2:
        raise InputError(
            f"--measure: a collective needs two ranks, and this machine has one "
            f"{machine['hardware']}; use --device cpu"
        )
    devices = max(machine["count"], 2)
    usual = 2 if machine["kind"] == "cpu" else devices
    return replace(system, devices_per_node=devices), usual


def _predict(layout: GroupLayout, request: SweepRequest) -> Sweep:
    from parsim.sim.benchmark.collective_sweep import COLLECTIVES, able_kinds, sweep

    algorithm, protocol, kinds = request.algorithm, request.protocol, request.kinds
    if kinds is None:
        kinds = able_kinds(layout, algorithm, protocol)
        if left := [kind for kind in COLLECTIVES if kind not in kinds]:
            forced = " with ".join(filter(None, (algorithm, protocol)))
            note(f"note: {forced} cannot do {', '.join(left)} on this group; left out")
    return sweep(layout, kinds, request.sizes, algorithm=algorithm, protocol=protocol)


def _measure(
    layout: GroupLayout, request: SweepRequest, machine: dict[str, Any], *, until: float
) -> dict[str, Any]:
    from parsim.launch.measuring import measure_collectives
    from parsim.sim.benchmark.collective_sweep import COLLECTIVES

    groups, ranks = len(layout.groups), layout.num_ranks
    if groups * ranks > machine["most_ranks"]:
        raise InputError(
            f"{groups} groups of {ranks} ranks are {groups * ranks}, more than the "
            f"{machine['most_ranks']} that {machine['count']} x {machine['kind']} of this machine "
            f"can run; use fewer --ranks or a smaller --concurrent"
        )
    kinds, device = request.kinds or COLLECTIVES, machine["kind"]
    with progress("measuring"):
        return measure_collectives(
            kinds, request.sizes, ranks=ranks, groups=groups, device=device, until=until
        )


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


def _together(sweep: Sweep, request: SweepRequest, measured: dict[str, Any] | None) -> Concurrent:
    from parsim.sim.benchmark.concurrent import together

    several = together(sweep, algorithm=request.algorithm, protocol=request.protocol)
    if measured is None:
        return several
    return several.beside(_times(measured, groups=len(several.layout.groups)))
