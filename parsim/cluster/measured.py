"""Reads what was measured of devices and systems: published kernels, residuals, collectives.

residuals:
  gemm:            # m, n, k, measured / modelled
    - [512, 256, 256, 1.04]
  norm_forward:    # bytes, measured / modelled
    - [1048576, 0.93]
  all_reduce:      # bytes, ranks of the group, measured / modelled
    - [1048576, 4, 1.1]
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

from parsim.cluster.document import Document, Node
from parsim.cluster.hardware import Curve, Measured
from parsim.errors import shown
from parsim.units import count_of, parse_quantity

LIMIT = 30.0
"""A kernel's measured time beyond this factor of the constants' is a mistake, not a residual: the
farthest real one so far is a loss on a CPU, 15 times its bytes."""
WHOLE_LIMIT = 100.0
"""The limit for whole layers and sharding: what is fixed was 42 times a short one's model."""
WHOLE_SPAN = 8.0
"""How far beyond the measured layers, as a factor of time, a line of whole layers is written."""
SPLIT, SEQUENCE = "split_", "sequence_"
"""What the kinds of measured layers of tensor-parallel plans begin with."""
CONTEXT, DISPATCHED = "context_", "dispatched_"
"""What stands before it, where context ranks share a block's sequences; and before that, where
ranks share its experts, to which tokens are dispatched."""
WAITED = "_waited"
"""What stands behind a part whose points say how much of what is modelled as exposed it waits."""
MOST_POINTS = 1000
"""Points of a kind: their covariance is inverted, 17 times to choose scales, in time that grows
with the cube of their number. A calibration with 28 cases of products wrote 96."""
OF_MAKE_UP = "-"
"""What stands between a layer's name and its make-up (`Layer.make_up`) in kinds of such layers
alone: `block-norm2-linear4-attention-gelu-residual2_forward`."""
_WHOLE = re.compile(
    rf"({DISPATCHED})?({CONTEXT})?({SPLIT}|{SEQUENCE})?"
    rf"(block|expert_block|embedding|head|sharded)({OF_MAKE_UP}[a-z0-9_-]+?)?"
    rf"({WAITED})?_(forward|backward)"
)

_SHARED = {
    **dict.fromkeys(("gemm", "conv_forward", "conv_data", "conv_weight"), 3),
    "attention_forward": 2,
    "attention_backward": 2,
}
"""Kinds with more than one coordinate: m, n, k; FLOPs and sequence length."""
_OF_GROUPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")
"""Bytes and ranks; a calibration that measured pairs only has written the bytes alone."""


def is_layer_kind(kind: str) -> bool:
    """Whether points of this kind are of whole layers, or of what sharding adds to them.

    Their one coordinate is modelled seconds, that of kernels is bytes (see
    `parsim.cost.layer.layers.measured_kind`).
    """
    return _WHOLE.fullmatch(kind) is not None


def read_residuals(document: Document, where: str, node: Node) -> Measured:
    """Kind to points; a point is its coordinates (above 0) and the ratio.

    Raises:
        ScenarioError: no such shape, more than MOST_POINTS of a kind, a coordinate or ratio that is
            no number above 0, a ratio beyond LIMIT, or a point that stands there twice.
    """
    return {
        kind: _points(document, f"{where}.{kind}", value, _width(kind, value))
        for kind, _, value in document.items(node, where)
    }


def _width(kind: str, node: Node) -> int:
    """Numbers of a kind's points; those of collectives say by their first one."""
    if kind in _OF_GROUPS and node.id == "sequence" and node.value:
        return 3 if len(node.value[0].value) > 2 else 2
    return 1 + _SHARED.get(kind, 1)


def _points(
    document: Document, where: str, node: Node, width: int
) -> tuple[tuple[float, ...], ...]:
    if node.id != "sequence" or not node.value:
        raise document.error(node, where, "must be a list of points, [coordinates..., ratio]")
    if len(node.value) > MOST_POINTS:
        message = f"has {len(node.value)} points of one kind; keep at most {MOST_POINTS}"
        raise document.error(node, where, message)
    points = tuple(_point(document, where, point, width) for point in node.value)
    if len({point[:-1] for point in points}) < len(points):
        raise document.error(node, where, "has two points at the same place; keep one")
    return points


def _point(document: Document, where: str, node: Node, width: int) -> tuple[float, ...]:
    if node.id != "sequence" or len(node.value) != width:
        raise document.error(
            node, where, f"must be a list of {width} numbers: {width - 1} coordinates and the ratio"
        )
    values = tuple(_number(document, where, number) for number in node.value)
    limit = WHOLE_LIMIT if is_layer_kind(where.rpartition(".")[2]) else LIMIT
    if not 1.0 / limit <= values[-1] <= limit:
        raise document.error(
            node,
            where,
            f"has the ratio {values[-1]:g}; measured over modelled must be within "
            f"{1.0 / limit:.2g} to {limit:g}; calibrate again",
        )
    return values


def _number(document: Document, where: str, node: Node) -> float:
    try:
        value = float(node.value)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        what = f"'{shown(node.value)}'" if node.id == "scalar" else f"a {node.id}"
        raise document.error(node, where, f"has {what}; every number must be above 0")
    return value


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """How measured points speak for their neighbours, in logarithms of time.

    `spread` is the standard deviation of what the model leaves, of which the share that is alike
    over `lengths` octaves of each coordinate is passed on to neighbours. `jagged` is what differs
    from shape to shape, `noise` what differs from repeat to repeat. `mean` is the prior of an error
    that all shapes share.
    """

    spread: float
    lengths: tuple[float, ...]
    jagged: float = 0.0
    noise: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """Points and scales by kind of kernel; empty where nothing was published."""

    points: Measured = field(default_factory=dict)
    scales: Mapping[str, Scales] = field(default_factory=dict)


@lru_cache(maxsize=64)
def benchmark(device: str) -> Benchmark:
    """What was published about a device of the catalog, by its id.

    `catalog/kernels/DEVICE.csv` has one row a shape: kind, coordinates, ratio (median over
    repeats). `catalog/kernels/scales.csv` says how far each table reaches. Both are written by
    `make fit-kernels`; the ratios belong to the constants that it wrote into `reports/kernels.md`.
    """
    folder = files("parsim.cluster") / "catalog" / "kernels"
    table = folder / f"{device}.csv"
    if not table.is_file():
        return Benchmark()
    points: dict[str, list[tuple[float, ...]]] = {}
    for kind, *numbers in csv.reader(_lines(table.read_text(encoding="utf-8"))):
        points.setdefault(kind, []).append(tuple(float(number) for number in numbers if number))
    scales = {}
    rows = csv.reader(_lines((folder / "scales.csv").read_text(encoding="utf-8")))
    for name, kind, spread, jagged, noise, *lengths in rows:
        if name == device:
            scales[kind] = Scales(
                spread=float(spread),
                jagged=float(jagged),
                noise=float(noise),
                lengths=tuple(float(number) for number in lengths if number),
            )
    return Benchmark(points={kind: tuple(rows) for kind, rows in points.items()}, scales=scales)


def _lines(text: str) -> list[str]:
    """The rows of a file without comments and without its header."""
    return [line for line in text.splitlines() if line and not line.startswith("#")][1:]
