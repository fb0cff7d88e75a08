"""Which nodes of a shared cluster a job takes: `0-3,8`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate

from parsim.errors import InputError, shown

MOST_NODES = 16_384
"""The largest cluster whose graph is made here: all nodes up to the last one that a job takes."""

_LETTERS = 7


def read_nodes(text: str, option: str = "nodes") -> tuple[int, ...]:
    """Numbers from a list of nodes and ranges, in the order in which they are written.

    Raises:
        InputError: no list of nodes, one twice or too large, or a range that goes down; it names
            the option whose list it is.
    """
    given = f"{option} '{shown(text)}'"
    nodes: list[int] = []
    for word in text.split(","):
        first, dash, last = (part.strip() for part in word.partition("-"))
        if not _is_number(first) or (dash and not _is_number(last)):
            raise InputError(f"{given}: '{shown(word)}' is no node and no range; e.g. 0-3,8")
        if dash and int(last) < int(first):
            raise InputError(f"{given}: '{shown(word)}' goes down; write the smaller one first")
        if int(last or first) >= MOST_NODES:
            raise InputError(f"{given}: allowed are nodes 0 to {MOST_NODES - 1}")
        nodes += range(int(first), int(last or first) + 1)
    if len(set(nodes)) < len(nodes):
        twice = next(node for index, node in enumerate(nodes) if node in nodes[:index])
        raise InputError(f"{given}: node {twice} stands there twice; name each node once")
    return tuple(nodes)


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= _LETTERS


def free_devices(
    wanted: Sequence[tuple[int, int]], sizes: Sequence[int], taken: Mapping[int, int], name: str
) -> tuple[int, ...]:
    """Devices of a job, after the `taken` ones of each node.

    Args:
        wanted: its nodes, and how many devices of each.
        sizes: devices of every node of the cluster.
        taken: how many of a node's other jobs have.
        name: the job's.

    Raises:
        InputError: a node has too few left.
    """
    devices: list[int] = []
    first = [0, *accumulate(sizes)]
    for node, each in wanted:
        used = taken.get(node, 0)
        left = sizes[node] - used
        if left < each:
            raise InputError(
                f"--beside: {name} needs {each} devices of node {node}, and {left} of "
                f"{sizes[node]} are left beside the other job; choose other nodes, or fewer "
                f"cluster.devices_per_node"
            )
        devices += range(first[node] + used, first[node] + used + each)
    return tuple(devices)
