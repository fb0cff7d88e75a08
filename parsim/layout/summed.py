"""Buckets of gradients that are summands on some axes, in the order in which backward fills them.

    backward     | fc6 | conv5 | conv4 | conv3 | conv2 | conv1 |
    axes (rows)        | conv5  conv4  |               | conv3 conv2 conv1 |      full, and the rest
    axes (rows, cols)                                  | norms |

Gradients that are summed over the same axes share buckets. One is full behind the operation whose
gradients bring it to its size; the rest goes behind the last operation. The simulator prices these
buckets and the executor sends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from parsim.layout.laid import Laid, whole_axes

Entry = tuple[str, str]
"""An operation and one of its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Gradients that are summed over `axes` together, of so many `values` on a device.

    `behind` is the operation whose backward fills it; None: it is sent behind the last one.
    """

    axes: tuple[int, ...]
    entries: tuple[Entry, ...]
    values: int
    behind: str | None


def buckets(laid: Laid, size: float, *, beside: bool) -> Iterator[Bucket]:
    """The buckets of a device's gradients.

    Args:
        laid: the graph on its mesh.
        size: values that close a bucket.
        beside: whether full ones are sent while backward goes on; else all gradients of some axes
            are one bucket behind it.
    """
    entries: dict[tuple[int, ...], list[Entry]] = {}
    values: dict[tuple[int, ...], int] = {}
    for node in reversed(laid.graph.nodes):
        reduced = laid.reduced(node)
        for parameter, layout in laid.parameters(node):
            axes = whole_axes(layout, laid.mesh)
            if axes:
                entries.setdefault(axes, []).append((node.name, parameter.name))
        for axes, count in reduced.items():
            values[axes] = values.get(axes, 0) + count
            if beside and values[axes] >= size:
                filled = tuple(entries.pop(axes))
                yield Bucket(axes=axes, entries=filled, values=values.pop(axes), behind=node.name)
    for axes, rest in entries.items():
        yield Bucket(axes=axes, entries=tuple(rest), values=values[axes], behind=None)
