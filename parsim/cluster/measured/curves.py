"""Reads the `curves` of a system: how long a collective takes on one group, by its bytes."""

from __future__ import annotations

from parsim.cluster.document import Document, Node
from parsim.cluster.hardware import Curve
from parsim.errors import shown
from parsim.units import count_of, parse_quantity

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")
_QUANTITIES = {
    "latency": "time",
    "bandwidth": "bandwidth",
    "ramp": "time",
    "link": "bandwidth",
    "node_bandwidth": "bandwidth",
    "least": "bytes",
    "most": "bytes",
}
_COUNTS = ("ranks", "nodes")
_NEEDED = ("collective", *_COUNTS, *_QUANTITIES, "source")


def read_curves(document: Document, where: str, node: Node) -> tuple[Curve, ...]:
    """The curves of one system.

    curves:
      - {collective: all_reduce, ranks: 8, nodes: 1, latency: 28us, bandwidth: 280GB/s, ramp: 7us,
         link: 450GB/s, least: 32KiB, most: 16GiB, source: "nccl-tests, ..."}

    latency + S / bandwidth + ramp sqrt(S / 1 MiB); `link` and, across nodes, `node_bandwidth` are
    the rates at which it was measured.

    Raises:
        ScenarioError: no list of mappings, an unknown or missing field, a value of the wrong kind,
            or two curves of one collective on one group.
    """
    if node.id != "sequence" or not node.value:
        raise document.error(node, where, "must be a list of curves, {collective: ..., ranks: ...}")
    curves: dict[tuple[str, int, int], Curve] = {}
    for entry in node.value:
        curve = _curve(document, where, entry)
        key = curve.collective, curve.ranks, curve.nodes
        if key in curves:
            message = f"has two curves of {key[0]} on {key[1]} ranks of {key[2]} nodes; keep one"
            raise document.error(entry, where, message)
        curves[key] = curve
    return tuple(curves.values())


def _curve(document: Document, where: str, node: Node) -> Curve:
    values = document.values(node, where, _NEEDED, _value)
    missing = [word for word in _NEEDED if word not in values]
    if values.get("nodes") == 1:
        missing = [word for word in missing if word != "node_bandwidth"]
        values.setdefault("node_bandwidth", None)
    if missing:
        raise document.error(node, where, f"has a curve without {', '.join(missing)}")
    if values["ranks"] < 2 or values["ranks"] % values["nodes"]:
        message = f"has ranks={values['ranks']}, which must be at least 2 and a multiple of nodes="
        raise document.error(node, where, f"{message}{values['nodes']}")
    return Curve(**values)


def _value(word: str, text: str) -> str | int | float:
    if word in _QUANTITIES:
        value = parse_quantity(text, _QUANTITIES[word])
        if value < 0 or (value == 0 and _QUANTITIES[word] == "bandwidth"):
            raise ValueError(f"'{shown(text)}' must be above 0")
        return value
    if word in _COUNTS:
        return count_of(text)
    if word == "collective" and text not in COLLECTIVES:
        raise ValueError(f"'{shown(text)}' is no collective; allowed: {', '.join(COLLECTIVES)}")
    if not text.strip():
        raise ValueError("must not be empty")
    return text
