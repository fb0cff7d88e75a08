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
from parsim.report.picture.cluster.layout import BOX, NAMES, GraphLayout, PartBox, kind_of, lay_out
from parsim.report.picture.legend import head_of
from parsim.report.picture.saving import STYLE, check_picture, save_picture
from parsim.report.text.topology import cable_rows, summary


class Stroke(NamedTuple):
    """Legend text, colour, dashes and width of a class of links."""

    label: str
    colour: str
    dashes: Any
    width: float


# Hues of report/picture/colours.py; every class has its own dashes too, so that no meaning rests
# on hue.
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
    check_picture(path)
    per_node = cluster.system.devices_per_node
    with matplotlib.rc_context(STYLE):
        figure = _compose(cluster, graph, lay_out(graph, per_node))
    save_picture(figure, path)
    return figure


def _compose(cluster: Cluster, graph: Graph, layout: GraphLayout) -> Figure:
    """The head with its legend, and below it the graph."""
    width = max(_LEFT + layout.width + _EDGE, 6.0)
    title = f"{cluster.num_nodes} x {cluster.system.name}"
    words = summary(graph)
    nodes = layout.drawn // cluster.system.devices_per_node
    if nodes < cluster.num_nodes:
        first = "the first" if nodes == 1 else f"the first {nodes}"
        words += f"; {first} of {cluster.num_nodes} nodes {'is' if nodes == 1 else 'are'} drawn"
    head = head_of(title, {"plan": words}, _legend(graph), width - 2 * _EDGE)
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


def _draw_cables(axes: Axes, graph: Graph, layout: GraphLayout) -> None:
    least: dict[str, float] = {}
    for name, rate in zip(graph.link_class, graph.capacity.tolist(), strict=True):
        least[name] = min(rate, least.get(name, rate))
    drawn = 0
    for link in range(graph.num_links):
        source, target = int(graph.source[link]), int(graph.target[link])
        if source > target or source not in layout.boxes or target not in layout.boxes:
            continue
        look = STROKES[graph.link_class[link]]
        width = look.width * min(float(graph.capacity[link]) / least[graph.link_class[link]], 3.0)
        curve = _curve(layout.boxes[source], layout.boxes[target])
        line: dict[str, Any] = {"edgecolor": look.colour, "linestyle": look.dashes}
        line |= {"facecolor": "none", "linewidth": width, "capstyle": "butt"}
        axes.add_patch(PathPatch(curve, zorder=1.0 + 0.1 * (drawn % 2), **line))
        drawn += 1


def _curve(start_box: PartBox, end_box: PartBox) -> Curve:
    """A straight line between rows, an arc within one; a hub is met straight below a part."""
    if start_box.y != end_box.y:
        wide, other = (
            (start_box, end_box) if start_box.width > end_box.width else (end_box, start_box)
        )
        x = wide.x
        if wide.width > 2 * BOX[0] and abs(other.x - wide.x) <= wide.width / 2:
            x = other.x
        edge = BOX[1] / 2 * (1 if other.y > wide.y else -1)
        ends = [(x, wide.y + edge), (other.x, other.y - edge)]
        return Curve(ends, [Curve.MOVETO, Curve.LINETO])
    depth = _depth(abs(start_box.x - end_box.x)) * (-1 if start_box.row == "device" else 1)
    start, end = (start_box.x, start_box.y), (end_box.x, end_box.y)
    bend = [(start_box.x, start_box.y + depth * 4 / 3), (end_box.x, end_box.y + depth * 4 / 3)]
    return Curve([start, *bend, end], [Curve.MOVETO, *[Curve.CURVE4] * 3])


def _depth(apart: float) -> float:
    """How far an arc leaves its row; neighbours are joined almost straight."""
    return 0.12 if apart < 2 * BOX[0] else min(0.12 + 0.24 * apart**0.8, _DEEPEST)


def _arc_room(graph: Graph, layout: GraphLayout) -> tuple[float, float]:
    """Room for arcs below the lowest row and above the highest."""
    below = above = 0.0
    for source, target in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        start_box, end_box = layout.boxes.get(source), layout.boxes.get(target)
        if start_box is None or end_box is None or start_box.y != end_box.y:
            continue
        depth = _depth(abs(start_box.x - end_box.x))
        if start_box.row == "device":
            below = max(below, depth - start_box.y)
        else:
            above = max(above, depth + start_box.y - layout.height)
    return below, above


def _draw_parts(axes: Axes, graph: Graph, layout: GraphLayout) -> None:
    for part, box in layout.boxes.items():
        axes.add_patch(
            FancyBboxPatch(
                (box.x - box.width / 2, box.y - BOX[1] / 2),
                box.width,
                BOX[1],
                boxstyle="round,pad=0,rounding_size=0.03",
                facecolor=FILLS.get(kind_of(graph, part), "#FFFFFF"),
                edgecolor="#404040",
                linewidth=0.6,
                zorder=3,
            )
        )
        look: dict[str, Any] = {"size": _POINTS, "ha": "center", "va": "center_baseline"}
        axes.text(box.x, box.y, box.label, zorder=4, **look)


def _name_rows(axes: Axes, graph: Graph, layout: GraphLayout) -> None:
    kinds: dict[str, set[str]] = {}
    for part, box in layout.boxes.items():
        kinds.setdefault(box.row, set()).add(kind_of(graph, part))
    for row, kinds_in_row in kinds.items():
        names: Sequence[str] = sorted({NAMES.get(kind, row) for kind in kinds_in_row})
        look: dict[str, Any] = {"color": "#404040", "va": "center_baseline"}
        axes.text(-_LEFT + _EDGE, layout.rows[row], " / ".join(names), size=_POINTS + 1, **look)
