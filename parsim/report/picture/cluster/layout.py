"""Where the parts of a graph are drawn: rows by kind, devices side by side, node after node.

spine          ┌──┐
leaf         ┌──┐  ┌──┐
interface    □ □    □ □
host          □      □
PCIe switch  □ □    □ □
device       □ □    □ □
NVSwitch     ▭▭▭    ▭▭▭
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from parsim.cluster.topology import Graph

ROWS: Final[Mapping[str, tuple[str, ...]]] = {
    "NVSwitch": ("nvswitch", "memory"),
    "device": ("gpu", "idle"),
    "PCIe switch": ("pcie", "switch"),
    "switch above": (),
    "host": ("host",),
    "interface": ("nic",),
    "leaf": ("leaf", "router"),
    "spine": ("spine",),
}
"""Rows from below, and the kinds of parts in each; above are switches that join switches only."""
ROW_OF: Final = {kind: row for row, kinds in ROWS.items() for kind in kinds}
NAMES: Final = {"memory": "memory", "router": "router", "switch": "switch"}
"""What a row is called that holds only parts of one of these kinds."""

STEP: Final = 0.42
"""Between two devices, inches."""
NODE_GAP: Final = 0.3
BOX: Final = (0.26, 0.2)
ROW_GAP: Final = 0.72
_FEW: Final = 48
"""How many devices are drawn; more nodes are told in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBox:
    """A part's row and box: middle, width, and what is written in it."""

    row: str
    x: float
    y: float
    width: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLayout:
    """Boxes by part, heights of rows by name, the size of it all in inches."""

    boxes: Mapping[int, PartBox]
    rows: Mapping[str, float]
    width: float
    height: float
    drawn: int


def lay_out(graph: Graph, devices_per_node: int) -> GraphLayout:
    """Place the parts of as many nodes as a picture has room for."""
    near = _neighbours(graph)
    devices = graph.devices.tolist()
    nodes = max(1, _FEW // devices_per_node)
    drawn = sorted(devices)[: nodes * devices_per_node]
    shown = _shown(graph, near, set(drawn), set(devices))
    row_of = _rows(graph, near, shown)
    rows = _row_heights(row_of, len(drawn) * STEP)
    gaps = [number // devices_per_node * NODE_GAP for number in range(len(drawn))]
    x = {part: number * STEP + gaps[number] for number, part in enumerate(drawn)}
    for row in ("PCIe switch", "switch above", "host", "interface", "leaf", "spine", "NVSwitch"):
        _place_row(near, [part for part in shown if row_of[part] == row], row, x)
        if row == "host":
            _clear_cables(near, row_of, x)
    left = min(x.values())
    x = {part: value - left for part, value in x.items()}
    width = max(x.values()) + STEP
    boxes = {part: _box(graph, part, row_of[part], rows, near[part], x) for part in shown}
    height = max(rows.values())
    return GraphLayout(boxes=boxes, rows=rows, width=width, height=height, drawn=len(drawn))


def _box(
    graph: Graph,
    part: int,
    row: str,
    rows: Mapping[str, float],
    near: set[int],
    x: Mapping[int, float],
) -> PartBox:
    """The box of a part in its row: a wide one in the middle of what is near."""
    wide = _width(graph.nodes[part], row, near, x)
    return PartBox(
        row=row,
        x=_middle(near, x) if wide > 2 * BOX[0] else x[part],
        y=rows[row],
        width=wide,
        label=_label(graph.nodes[part], wide),
    )


def _neighbours(graph: Graph) -> Mapping[int, set[int]]:
    near: dict[int, set[int]] = defaultdict(set)
    for a, b in zip(graph.source.tolist(), graph.target.tolist(), strict=True):
        near[a].add(b)
    return near


def _shown(
    graph: Graph, near: Mapping[int, set[int]], drawn: set[int], devices: set[int]
) -> list[int]:
    """Drawn devices and what they reach going up: no other devices, no other nodes' interfaces."""
    seen, open_ = set(drawn), list(drawn)
    while open_:
        part = open_.pop()
        shared = kind_of(graph, part) in ("leaf", "router", "spine")
        for other in near[part]:
            down = shared and kind_of(graph, other) in ("nic", "leaf", "router")
            hidden = other in devices or down
            if other not in seen and not hidden:
                seen.add(other)
                open_.append(other)
    return sorted(seen)


def kind_of(graph: Graph, part: int) -> str:
    """What a part is: gpu, nvswitch, nic and so on."""
    return graph.nodes[part].partition(":")[0]


def _rows(graph: Graph, near: Mapping[int, set[int]], shown: Sequence[int]) -> dict[int, str]:
    """Row of each part by its kind; switches of switches are above the others."""
    row_of = {part: ROW_OF[kind_of(graph, part)] for part in shown}
    ends = {part for part, row in row_of.items() if row in ("device", "interface")}
    for part, row in list(row_of.items()):
        if row == "PCIe switch" and not near[part] & ends:
            row_of[part] = "switch above"
    return row_of


def _row_heights(row_of: Mapping[int, str], width: float) -> dict[str, float]:
    """Heights of the rows that have parts; many long cables below a row need more room."""
    heights: dict[str, float] = {}
    height = 0.0
    for row in ROWS:
        parts = sum(other == row for other in row_of.values())
        if parts:
            height += ROW_GAP if heights else 0.0
            crossing = row in ("leaf", "spine") and 1 < parts < len(row_of) / 8
            height += min(0.09 * width, 2.5) if crossing else 0.0
            heights[row] = height
    return heights


def _place_row(
    near: Mapping[int, set[int]], parts: Sequence[int], row: str, x: dict[int, float]
) -> None:
    """Each part over the middle of what is placed below it, side by side where they would touch."""
    if not parts:
        return
    if row in ("leaf", "spine"):
        order = sorted(parts)
        left, right = min(x.values()), max(x.values())
        step = max((right - left) / len(order), STEP)
        start = (left + right) / 2 - step * (len(order) - 1) / 2
        x.update({part: start + step * number for number, part in enumerate(order)})
        return
    below = {part: [x[other] for other in near[part] if other in x] for part in parts}
    known = {part: sum(places) / len(places) for part, places in below.items() if places}
    middle = sum(known.values()) / len(known) if known else 0.0
    order = sorted(parts, key=lambda part: (known.get(part, middle), part))
    spread = _apart([known.get(part, middle) for part in order])
    x.update(zip(order, spread, strict=True))


def _clear_cables(
    near: Mapping[int, set[int]], row_of: Mapping[int, str], x: dict[int, float]
) -> None:
    """Move hosts off the cables that pass them, from a part below to an interface above."""
    passing = [
        x[part]
        for part, row in row_of.items()
        if row != "host" and part in x and any(row_of.get(o) == "interface" for o in near[part])
    ]
    for part, row in row_of.items():
        if row == "host" and any(abs(x[part] - cable) < BOX[0] / 2 for cable in passing):
            x[part] += STEP / 2


def _apart(wanted: Sequence[float]) -> list[float]:
    """Positions at least a box and a gap apart, nearest to the wanted ones, in their order."""
    least = BOX[0] + 0.06
    groups: list[list[float]] = []  # [sum of wanted - own offset, members]
    for middle in wanted:
        groups.append([middle, 1.0])
        while len(groups) > 1:
            (before, many), (after, few) = groups[-2:]
            if before / many + many * least <= after / few + 1e-9:
                break
            groups[-2:] = [[before + after - few * many * least, many + few]]
    return [
        total / many + number * least for total, many in groups for number in range(round(many))
    ]


def _width(name: str, row: str, near: set[int], x: Mapping[int, float]) -> float:
    """A hub is as wide as the devices on it; other boxes hold a number."""
    below = [x[other] for other in near if other in x]
    if row == "NVSwitch" and below:
        return max(below) - min(below) + BOX[0]
    return max(BOX[0], 0.075 * len(_number(name)) + 0.1)


def _middle(near: set[int], x: Mapping[int, float]) -> float:
    below = [x[other] for other in near if other in x]
    return (max(below) + min(below)) / 2


def _label(name: str, width: float) -> str:
    """A box's number; a wide one has room for that of its node too."""
    return name.partition(":")[2] if width > 2 * BOX[0] else _number(name)


def _number(name: str) -> str:
    """What tells a part from others of its row: the index, without the node where there is one."""
    kind, _, index = name.partition(":")
    return index if kind in ("gpu", "leaf", "spine", "router") else index.rpartition(".")[2]
