"""A picture of a system's graph: parts in rows, cables by class in colour and line style."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, PathPatch
from matplotlib.path import Path as Curve

from parsim.cluster.hardware import Cluster, LinkClass
from parsim.cluster.topology import Graph
from parsim.report.gantt import STYLE, check_picture, save_picture
from parsim.report.legend import head_of
from parsim.report.topology import cable_rows, summary
from parsim.report.topology_layout import BOX, NAMES, Layout, Place, lay_out


class Stroke(NamedTuple):
    """Legend text, colour, dashes and width of a class of links."""

    label: str
    colour: str
    dashes: Any
    width: float


# Hues of report/colours.py; every class has its own dashes too, so that no meaning rests on hue.
STROKES: Final[dict[LinkClass, Stroke]] = {
    "nvlink": Stroke("NVLink", "#009E73", "solid", 1.7),
    "shared-memory": Stroke("shared memory", "#009E73", (0, (8, 2)), 1.7),
    "c2c": Stroke("NVLink-C2C", "#882255", (0, (8, 1.5, 1, 1.5)), 1.3),
    "pcie": Stroke("PCI Express", "#0072B2", (0, (4, 1.6)), 1.1),
    "cpu": Stroke("CPU to CPU", "#4D4D4D", (0, (1, 1)), 1.8),
    "nic": Stroke("NIC to leaf", "#E69F00", (0, (6, 1.5, 1.2, 1.5)), 1.1),
    "spine": Stroke("leaf to spine", "#D55E00", (0, (1.2, 1.2)), 1.5),
    "cable": Stroke("between routers", "#D55E00", (0, (5, 1, 1, 1, 1, 1)), 1.3),
    "global": Stroke("between groups", "#CC79A7", (0, (9, 3)), 1.3),
    "storage": Stroke("storage", "#4D4D4D", (0, (9, 2, 1, 2)), 1.3),
}
FILLS: Final = {
    "gpu": "#D9F0E7",
    "nvswitch": "#BFE3D3",
    "memory": "#BFE3D3",
    "pcie": "#D6E7F3",
    "host": "#E4E4E4",
    "nic": "#FBEBC8",
    "leaf": "#FADCCB",
    "router": "#FADCCB",
    "spine": "#F3C3A6",
}
_LEFT: Final = 1.05
_EDGE: Final = 0.2
_WIDEST: Final = 3.0
_DEEPEST: Final = 2.0
_POINTS: Final = 7.0


def draw_topology(cluster: Cluster, graph: Graph, path: Path | None = None) -> Figure:
    """Draw a graph, and save it where a path is given.

    Raises:
        InputError: the path names no picture, or cannot be written.
    """
    if path is not None:
        check_picture(path)
    per_node = cluster.system.devices_per_node
    with matplotlib.rc_context(STYLE):
        figure = _compose(cluster, graph, lay_out(graph, per_node))
    if path is not None:
        save_picture(figure, path)
    return figure


def _compose(cluster: Cluster, graph: Graph, layout: Layout) -> Figure:
    width = max(_LEFT + layout.width + _EDGE, 6.0)
    title = f"{cluster.num_nodes} x {cluster.system.name}"
    said = summary(graph)
    nodes = layout.drawn // cluster.system.devices_per_node
    if nodes < cluster.num_nodes:
        first = "the first" if nodes == 1 else f"the first {nodes}"
        said += f"; {first} of {cluster.num_nodes} nodes {'is' if nodes == 1 else 'are'} drawn"
    head = head_of(title, {"plan": said}, _legend(graph), width - 2 * _EDGE)
    below, above = (room + 0.3 for room in _arc_room(graph, layout))
    height = head.height + layout.height + above + below
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-_LEFT, width - _LEFT)
    axes.set_ylim(-below, height - below)
    axes.axis("off")
    head.draw(figure, _EDGE)
    _draw_cables(axes, graph, layout)
    _draw_parts(axes, graph, layout)
    _name_rows(axes, graph, layout)
    return figure


def _legend(graph: Graph) -> dict[str, Line2D]:
    """Class with its rates; the widths of one class are those of its rates."""
    rates: dict[LinkClass, set[float]] = {}
    for name, _, _, rate, _, _ in cable_rows(graph):
        rates.setdefault(name, set()).add(rate)  # type: ignore[arg-type]
    legend = {}
    for name, look in STROKES.items():
        for rate in sorted(rates.get(name, ())):
            width = look.width * min(rate / min(rates[name]), _WIDEST)
            legend[f"{look.label} {rate / 1e9:.4g} GB/s"] = Line2D(
                [], [], color=look.colour, linestyle=look.dashes, linewidth=width
            )
    return legend


def _draw_cables(axes: Axes, graph: Graph, layout: Layout) -> None:
    least: dict[str, float] = {}
    for name, rate in zip(graph.link_class, graph.capacity.tolist(), strict=True):
        least[name] = min(rate, least.get(name, rate))
    drawn = 0
    for link in range(graph.num_links):
        source, target = int(graph.source[link]), int(graph.target[link])
        if source > target or source not in layout.places or target not in layout.places:
            continue
        look = STROKES[graph.link_class[link]]
        width = look.width * min(float(graph.capacity[link]) / least[graph.link_class[link]], 3.0)
        curve = _curve(layout.places[source], layout.places[target])
        axes.add_patch(
            PathPatch(
                curve,
                facecolor="none",
                edgecolor=look.colour,
                linestyle=look.dashes,
                linewidth=width,
                capstyle="butt",
                zorder=1.0 + 0.1 * (drawn % 2),
            )
        )
        drawn += 1


def _curve(one: Place, two: Place) -> Curve:
    """A straight line between rows, an arc within one; a hub is met straight below a part."""
    if one.y != two.y:
        wide, other = (one, two) if one.width > two.width else (two, one)
        x = wide.x
        if wide.width > 2 * BOX[0] and abs(other.x - wide.x) <= wide.width / 2:
            x = other.x
        edge = BOX[1] / 2 * (1 if other.y > wide.y else -1)
        ends = [(x, wide.y + edge), (other.x, other.y - edge)]
        return Curve(ends, [Curve.MOVETO, Curve.LINETO])
    depth = _depth(abs(one.x - two.x)) * (-1 if one.row == "device" else 1)
    start, end = (one.x, one.y), (two.x, two.y)
    bend = [(one.x, one.y + depth * 4 / 3), (two.x, two.y + depth * 4 / 3)]
    return Curve([start, *bend, end], [Curve.MOVETO, *[Curve.CURVE4] * 3])


def _depth(apart: float) -> float:
    """How far an arc leaves its row; neighbours are joined almost straight."""
    return 0.12 if apart < 2 * BOX[0] else min(0.12 + 0.24 * apart**0.8, _DEEPEST)


def _arc_room(graph: Graph, layout: Layout) -> tuple[float, float]:
    """Room for arcs below the lowest row and above the highest."""
    below = above = 0.0
    for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        one, two = layout.places.get(source), layout.places.get(target)
        if one is None or two is None or one.y != two.y:
            continue
        depth = _depth(abs(one.x - two.x))
        if one.row == "device":
            below = max(below, depth - one.y)
        else:
            above = max(above, depth + one.y - layout.height)
    return below, above


def _draw_parts(axes: Axes, graph: Graph, layout: Layout) -> None:
    for part, place in layout.places.items():
        axes.add_patch(
            FancyBboxPatch(
                (place.x - place.width / 2, place.y - BOX[1] / 2),
                place.width,
                BOX[1],
                boxstyle="round,pad=0,rounding_size=0.03",
                facecolor=FILLS.get(_kind(graph, part), "#FFFFFF"),
                edgecolor="#404040",
                linewidth=0.6,
                zorder=3,
            )
        )
        axes.text(
            place.x,
            place.y,
            place.label,
            size=_POINTS,
            ha="center",
            va="center_baseline",
            zorder=4,
        )


def _name_rows(axes: Axes, graph: Graph, layout: Layout) -> None:
    kinds: dict[str, set[str]] = {}
    for part, place in layout.places.items():
        kinds.setdefault(place.row, set()).add(_kind(graph, part))
    for row, found in kinds.items():
        names: Sequence[str] = sorted({NAMES.get(kind, row) for kind in found})
        axes.text(
            -_LEFT + _EDGE,
            layout.rows[row],
            " / ".join(names),
            size=_POINTS + 1,
            color="#404040",
            va="center_baseline",
        )


def _kind(graph: Graph, part: int) -> str:
    return graph.nodes[part].partition(":")[0]
