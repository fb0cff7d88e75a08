"""`parsim partition`: the stages of a measured graph of layers whose slowest one is fastest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsim.cli.terminal import AsJson, print_json, show
from parsim.errors import InputError, shown

if TYPE_CHECKING:
    from parsim.partition.levels import Level

Graph = Annotated[Path, typer.Argument(metavar="GRAPH", help="graph.txt of PipeDream's profiler")]
Levels = Annotated[
    list[str],
    typer.Option(
        "--level",
        metavar="N@BANDWIDTH",
        help="devices of a node, then nodes, ..: --level 4@10GB/s --level 4@1.25GB/s",
    ),
]
Mode = Annotated[
    str, typer.Option(help="cost model: pipedream, pipedream-paper, or parsim (runs judge)")
]
Transfers = Annotated[bool, typer.Option("--transfers", help="messages between stages count too")]
Compression = Annotated[float, typer.Option(help="divide the size of messages by this")]
Straight = Annotated[bool, typer.Option("--straight", help="no replicas: a stage a device")]
Memory = Annotated[
    str | None,
    typer.Option(metavar="BYTES", help="of a device, which weights and activations must fit: 16GB"),
]


def partition(
    graph: Graph,
    level: Levels,
    mode: Mode = "pipedream",
    transfers: Transfers = False,
    compression: Compression = 1.0,
    straight: Straight = False,
    memory: Memory = None,
    as_json: AsJson = False,
) -> None:
    """Cut a measured graph of layers into replicated stages, proven optimal for its cost model."""
    from parsim.partition.levels import Options
    from parsim.partition.result import partition_file
    from parsim.report.text.planning.partition import partition_view
    from parsim.units import asked_quantity

    options = Options(
        mode=mode,
        transfers=transfers,
        compression=compression,
        straight=straight,
        memory=None if memory is None else asked_quantity("--memory", memory, "bytes"),
    )
    report = partition_file(graph, [_level(text) for text in level], options)
    if as_json:
        print_json(report.to_json())
    else:
        show(partition_view(report))


def _level(text: str) -> Level:
    from parsim.partition.levels import Level
    from parsim.units import asked_quantity

    count, sign, bandwidth = text.partition("@")
    if not sign or not count.isdecimal() or len(count) > 6:
        raise InputError(f"--level '{shown(text)}' must be N@BANDWIDTH, e.g. 4@10GB/s")
    return Level(int(count), asked_quantity("--level", bandwidth, "bandwidth"))
