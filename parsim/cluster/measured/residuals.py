"""Reads the `residuals` of a calibrated device: by how much the model was off, point by point.

residuals:
  gemm:            # m, n, k, measured / modelled
    - [512, 256, 256, 1.04]
  norm_forward:    # bytes, measured / modelled
    - [1048576, 0.93]
  all_reduce:      # bytes, ranks of the group, measured / modelled
    - [1048576, 4, 1.1]
"""

from __future__ import annotations

import math

from parsim.cluster.document import Document, Node
from parsim.cluster.hardware import Measured
from parsim.cluster.measured.layer_kinds import is_layer_kind
from parsim.errors import shown

LIMIT = 30.0
"""A kernel's measured time beyond this factor of the constants' is a mistake, not a residual: the
farthest real one so far is a loss on a CPU, 15 times its bytes."""
WHOLE_LIMIT = 100.0
"""The limit for whole layers and sharding: what is fixed was 42 times a short one's model."""
WHOLE_SPAN = 8.0
"""How far beyond the measured layers, as a factor of time, a line of whole layers is written."""
MOST_POINTS = 1000
"""Points of a kind: their covariance is inverted, 17 times to choose scales, in time that grows
with the cube of their number. A calibration with 28 cases of products wrote 96."""

_SHARED = {
    **dict.fromkeys(("gemm", "conv_forward", "conv_data", "conv_weight"), 3),
    "attention_forward": 2,
    "attention_backward": 2,
}
"""Kinds with more than one coordinate: m, n, k; FLOPs and sequence length."""
_OF_GROUPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all")
"""Bytes and ranks; a calibration that measured pairs only has written the bytes alone."""


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
