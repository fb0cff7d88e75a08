"""The `catalog` command: lists, one system's graph, and importers of topologies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.terminal import AsJson, note, print_json, show
from parsim.errors import InputError

if TYPE_CHECKING:
    from parsim.cluster.hardware import Cluster

app = typer.Typer(
    name="catalog",
    help="List devices, systems, models, schedules, strategies, software; show, import topologies.",
    no_args_is_help=True,
)
Files = Annotated[
    list[Path] | None, typer.Option("--catalog", metavar="FILE", help="a catalog file of your own")
]


def _add_list(kind: str, words: str) -> None:
    """Add the command that lists one kind of entry."""

    @app.command(kind, help=words)
    def listing(as_json: AsJson = False) -> None:
        from parsim.report.text.catalog import catalog_rows, catalog_view

        rows = catalog_rows(kind)
        if as_json:
            print_json({"schema_version": 1, kind: rows})
        else:
            show(catalog_view(kind, rows))


_add_list("devices", "List known devices.")
_add_list("systems", "List known systems: kinds of nodes and how they are joined.")
_add_list("models", "List known models.")
_add_list("schedules", "List pipeline schedules.")
_add_list("software", "List software stacks.")


@app.command("strategies")
def strategies(as_json: AsJson = False) -> None:
    """List data-parallel strategies: what each does, its formula, when to use it."""
    from parsim.report.text.strategies import strategies_view, strategy_rows

    if as_json:
        print_json({"schema_version": 1, "strategies": strategy_rows()})
    else:
        show(strategies_view())


@app.command("show")
def show_system(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="id of a system")],
    nodes: Annotated[int, typer.Option(min=1, help="how many of its nodes")] = 1,
    files: Files = None,
    failed: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="out of order: nic:0.3, or leaf:0.1->spine:0"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="picture: .png or .svg")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a system's links, their rates and the bisection; draw them."""
    from parsim.cluster.topology import build_graph
    from parsim.report.text.topology import topology_json, topology_view

    cluster = _cluster(system, nodes, files or [], failed or [])
    graph = build_graph(cluster)
    if output is not None:
        from parsim.report.picture.cluster.topology import draw_topology
        from parsim.report.picture.saving import check_picture

        check_picture(output)
        draw_topology(cluster, graph, output)
        note(f"picture written to {output}")
    if as_json:
        print_json(topology_json(cluster, graph))
    else:
        show(topology_view(cluster, graph))


def _cluster(system: str, nodes: int, files: list[Path], failed: list[str]) -> Cluster:
    from parsim.cluster.hardware import Cluster
    from parsim.cluster.reader import load_catalog

    if Path(system).suffix in (".yaml", ".yml"):
        raise InputError(f"SYSTEM is an id, not a file; use --catalog {system} and its system's id")
    known = load_catalog(files).system(system)
    return Cluster(system=known, num_nodes=nodes, failed=tuple(failed))


@app.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="what a machine prints of itself")],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="id of the new system")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="catalog file to write; default: stdout")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="ID", help="the devices, where the file does not say")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="NAME may be that of a system of parsim's catalog")
    ] = False,
) -> None:
    """Make a system of a topology: nvidia-smi topo -m, XML of NCCL or lstopo, ASTRA-sim's yml."""
    from parsim.cluster.importers import catalog_text, import_topology
    from parsim.report.writing import check_other, write_text

    if out is not None:
        check_other(out, file)
    topology = import_topology(file, device)
    text = catalog_text(topology, name, replace=replace)
    for remark in topology.notes:
        note(f"note: {remark}")
    if out is None:
        sys.stdout.write(text)
        return
    write_text(out, text)
    note(f"system {name} written to {out}; show it: parsim catalog show {name} --catalog {out}")
