"""A system's graph of links as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from parsim.cluster.hardware import Cluster
from parsim.cluster.topology import Graph, bisection
from parsim.report.text.tables import table
from parsim.units import format_rate

SCHEMA_VERSION = 1
Row = tuple[str, str, str, float, float, float]
"""Class, kinds of the two ends, rate, NCCL's rate, latency: what cables have in common."""


def topology_json(cluster: Cluster, graph: Graph) -> dict[str, Any]:
    """Every directed link, its rate as quoted (GB = 1e9 bytes), and the bisection."""
    links = [graph.link(index) for index in range(graph.num_links)]
    return {
        "schema_version": SCHEMA_VERSION,
        "system": cluster.system.id,
        "devices": len(graph.devices),
        "links": [
            {
                "from": link.source,
                "to": link.target,
                "class": link.link_class,
                "bandwidth_gb_per_s": link.capacity / 1e9,
                "latency_us": link.latency * 1e6,
            }
            for link in links
        ],
        "bisection_gb_per_s": bisection(graph) / 1e9,
    }


def topology_view(cluster: Cluster, graph: Graph) -> RenderableType:
    """Cables of one kind in a row: how many, how fast, how much of it NCCL reaches."""
    columns = "class | between | cables | GB/s | NCCL GB/s | latency us"
    filled = table(columns, right=(2, 3, 4, 5))
    for (link_class, near, far, rate, reached, latency), count in cable_rows(graph).items():
        filled.add_row(
            link_class,
            f"{near} - {far}",
            f"{count:,}",
            f"{rate / 1e9:,.5g}",
            f"{reached / 1e9:,.4g}",
            f"{latency * 1e6:.4g}",
        )
    return Group(
        Text(f"{cluster.num_nodes} x {cluster.system.name}", style="bold"),
        filled,
        Text(""),
        Text(summary(graph)),
        Text("GB/s are those of one direction; both at once.", style="dim"),
    )


def summary(graph: Graph) -> str:
    """Number of devices, and what their halves can send each other."""
    devices = len(graph.devices)
    if devices < 2:
        return "1 device"
    half = devices // 2
    rate = format_rate(bisection(graph))
    halves = f"{_span(0, half - 1)} to {_span(half, devices - 1)}"
    return f"{devices:,} devices; bisection {rate} from {'rank' if half == 1 else 'ranks'} {halves}"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def cable_rows(graph: Graph) -> Counter[Row]:
    """Cables by class, ends and rates, those near the devices first."""
    kinds = [name.partition(":")[0] for name in graph.nodes]
    rows: Counter[Row] = Counter()
    for link in range(0, graph.num_links, 2):
        rows[
            graph.link_class[link],
            kinds[graph.source[link]],
            kinds[graph.target[link]],
            float(graph.capacity[link]),
            float(graph.effective[link]),
            float(graph.latency[link]),
        ] += 1
    return rows
