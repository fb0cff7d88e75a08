"""The command `collectives`: predicted like nccl-tests, drawn, several at once, and measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsim.cli.benchmark.group_request import GroupRequest, measured_machine
from parsim.cli.benchmark.sweep_request import SweepRequest, check_together, read_request
from parsim.cli.terminal import AsJson, note, print_json, progress, show
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.sim.benchmark.collective_sweep import Sweep, Timings
    from parsim.sim.benchmark.concurrent import Concurrent
    from parsim.sim.benchmark.group_layout import GroupLayout

SystemName = Annotated[
    str | None, typer.Option(metavar="S", help="a name of `parsim catalog systems`")
]
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
    int | None, typer.Option(min=2, help="ratio of a range's sizes; default 2, with --measure 4")
]
ForcedAlgorithm = Annotated[
    str | None, typer.Option(help="force ring, tree, nvls, ... as NCCL_ALGO does")
]
ForcedProtocol = Annotated[
    str | None, typer.Option(help="force LL, LL128 or Simple as NCCL_PROTO does")
]
AtOnce = Annotated[
    int | None, typer.Option(metavar="N", help="so many groups: one alone, and all at once")
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
    until = time.time() + time_limit
    request = read_request(kind, sizes, factor, algorithm, protocol, measure=measure)
    check_together(concurrent, group, ranks, request, measure=measure, nodes=nodes)
    if output is not None:
        from parsim.report.picture.saving import check_picture

        check_picture(output)
    groups = GroupRequest(
        system=system, device=device, nodes=nodes, ranks=ranks, group=group, at_once=concurrent
    )
    benchmark = _run(request, groups, measured_machine(device) if measure else None, until)
    if output is not None:
        benchmark.draw(output)
    for left in benchmark.measured["left_out"] if benchmark.measured else ():
        note(f"note: {left}")
    if as_json:
        print_json(benchmark.to_json())
    else:
        benchmark.show(verbose=verbose)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Benchmark:
    """Collectives of one group, those of several at once, and what the machine measured of both."""

    sweep: Sweep
    several: Concurrent | None
    measured: dict[str, Any] | None

    @property
    def conditions(self) -> str:
        """On what they were measured, where they were."""
        return "" if self.measured is None else _conditions(self.measured)

    def draw(self, output: Path) -> None:
        """Write the picture."""
        from parsim.report.picture.collective_curves import draw_collectives

        draw_collectives(self.sweep, output, remark=self.conditions, concurrent=self.several)
        note(f"picture written to {output}")

    def to_json(self) -> dict[str, Any]:
        """The document of `--json`."""
        several = self.several and self.several.to_json()
        blocks = {"concurrent": several, "measurement": self.measured}
        more = {name: block for name, block in blocks.items() if block is not None}
        return {**self.sweep.to_json(), **more}

    def show(self, *, verbose: bool) -> None:
        """Print the tables."""
        from parsim.report.text.collectives import concurrent_view, sweep_view

        show(sweep_view(self.sweep, verbose=verbose))
        if self.several is not None:
            show(concurrent_view(self.several))
        if self.conditions:
            note(self.conditions)


def _run(
    request: SweepRequest, groups: GroupRequest, machine: dict[str, Any] | None, until: float
) -> _Benchmark:
    """Predict, and measure on the machine where there is one."""
    layout = groups.layout(machine)
    sweep, measured = _predict(layout, request), None
    if machine is not None:
        measured = _measure(layout, request, machine, until=until)
        sweep = sweep.beside(_times(measured, groups=1))
    several = _together(sweep, request, measured) if len(layout.groups) > 1 else None
    return _Benchmark(sweep=sweep, several=several, measured=measured)


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
