"""The best partition of a graph of layers as text for people."""

from __future__ import annotations

from math import isfinite

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from parsim.partition.result import PartitionReport
from parsim.report.text.tables import table
from parsim.units import format_bytes, format_seconds

LONGEST = 40
"""Characters of a layer's description that are printed."""


def partition_view(report: PartitionReport) -> RenderableType:
    """The plan, its stages, and how it compares with one device and with replicas of the whole."""
    best = report.best
    return Group(
        Text(f"{report.name}: {format_seconds(best.seconds)} a micro-batch{_where(report)}"),
        Text(
            f"{report.over_one_device:.3f} times as fast as one device "
            f"({format_seconds(best.one_device)}), {report.over_data_parallel:.3f} times as fast "
            f"as data parallelism ({format_seconds(best.data_parallel)})"
        ),
        Text(""),
        _stages(report),
        Text(""),
        Text(_how(report), style="dim"),
    )


def _where(report: PartitionReport) -> str:
    return " in the steady state" if report.judged is None else ""


def _how(report: PartitionReport) -> str:
    """What stands behind the plan: a proof under a cost model, or runs."""
    judged = report.judged
    if judged is None:
        return (
            "proven: no cut and no numbers of replicas have a faster slowest stage under this cost "
            "model; fill, drain and latencies are left out"
        )
    theirs = (
        f"PipeDream's optimum takes {format_seconds(judged.of_pipedream)} ({judged.gain:.3f} times "
        f"as long)"
        if isfinite(judged.of_pipedream)
        else "PipeDream's optimum does not fit the memory with all its versions"
    )
    return (
        f"judged by runs of {judged.microbatches} micro-batches, fill and drain and old weights "
        f"among them; so judged, {theirs}; data parallelism is so judged too; {judged.runs} "
        f"partitions were run, nothing is proven"
    )


def _stages(report: PartitionReport) -> Table:
    columns = "stage | replicas | layers | compute | weights | first layer | last layer"
    rows = table(columns, right=(0, 1, 2, 3, 4))
    for number, stage in enumerate(report.stages):
        first, last = (report.graph.layers[stage.layers[end]] for end in (0, -1))
        rows.add_row(
            str(number),
            str(stage.replicas),
            str(len(stage.layers)),
            format_seconds(stage.seconds),
            format_bytes(stage.parameters),
            _short(f"{first.name} {first.description}"),
            _short(f"{last.name} {last.description}"),
        )
    return rows


def _short(text: str) -> str:
    """A layer's words, cut with three dots where they are too long for a column."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
