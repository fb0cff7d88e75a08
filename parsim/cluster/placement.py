"""How groups of ranks fall on nodes, who shares their interfaces, and which nodes a job takes.

A communicator of one mesh axis is the ranks base, base + stride, ..., base + (size - 1) stride. One
of two axes with others between them is `rows` of these, `row_stride` apart.
Blocks of size x stride ranks tile the world; each holds `stride` groups, one per offset. With
size 4, stride 2 and nodes of 4 (groups a, b in the first block, c, d in the second):

    node 0    node 1    node 2    node 3
    a b a b | a b a b | c d c d | c d c d      2 ranks a node, 2 nodes, 2 groups share a node
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from parsim.errors import InputError, PlanError, shown

if TYPE_CHECKING:
    from parsim.arrays import Ints


@dataclass(frozen=True, slots=True)
class GroupShape:
    """Placement of the worst-placed group of an axis.

    `ranks_per_node` is the fewest ranks that a touched node holds of one group, `num_nodes` the
    most nodes that a group touches, `sharing` the most groups in one node that also leave it (0
    where none leaves), `spans_leaves` whether any group lies under more than one leaf group.
    """

    size: int
    ranks_per_node: int
    num_nodes: int
    sharing: int
    spans_leaves: bool


@lru_cache(maxsize=65536)
def group_shape(
    *,
    size: int,
    stride: int,
    devices_per_node: int,
    world_size: int,
    nodes_per_leaf: int,
    rows: int = 1,
    row_stride: int = 1,
) -> GroupShape:
    """Place all groups of ranks base + i stride + j row_stride, i < size, j < rows.

    Closed form where groups and nodes divide each other, counted rank by rank otherwise.

    Args:
        size: ranks of a group, or of each of its rows.
        stride: distance of neighbours in a group.
        devices_per_node: ranks a node holds.
        world_size: ranks in all; a multiple of size x stride.
        nodes_per_leaf: nodes under one leaf group.
        rows: rows of a group, `size` ranks each.
        row_stride: distance of a row from the next, a multiple of size x stride.

    Raises:
        PlanError: an argument below 1, or groups that do not tile the world.
    """
    _require_positive(
        size=size,
        stride=stride,
        devices_per_node=devices_per_node,
        world_size=world_size,
        nodes_per_leaf=nodes_per_leaf,
        rows=rows,
        row_stride=row_stride,
    )
    if rows > 1:
        wide = (size, stride, rows, row_stride)
        return _counted(wide, devices_per_node, world_size, nodes_per_leaf)
    span = size * stride
    if world_size % span:
        raise PlanError(
            f"groups of size={size} and stride={stride} do not tile world_size={world_size}; "
            f"it must be a multiple of {span}"
        )
    if size == 1 or devices_per_node % span == 0:
        return GroupShape(size, size, 1, 0, False)
    one_divides_the_other = stride % devices_per_node == 0 or devices_per_node % stride == 0
    if span % devices_per_node == 0 and one_divides_the_other:
        return _aligned(size, stride, devices_per_node, world_size, nodes_per_leaf)
    return _counted((size, stride, 1, 1), devices_per_node, world_size, nodes_per_leaf)


def _require_positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise PlanError(f"{name}={value} must be at least 1")


def _aligned(
    size: int, stride: int, devices_per_node: int, world_size: int, nodes_per_leaf: int
) -> GroupShape:
    """Blocks of whole nodes, and every node of a block alike."""
    block_nodes = size * stride // devices_per_node
    if block_nodes == 1:
        return GroupShape(size, size, 1, 0, False)
    ranks_per_node = max(1, devices_per_node // stride)
    # Some group spans two leaf groups exactly where a block does: it holds the last node before
    # the border or an earlier one, and its next rank, less than a block away, lies beyond. Blocks
    # start at multiples of block_nodes, so none crosses a border that is such a multiple.
    nodes = math.ceil(world_size / devices_per_node)
    return GroupShape(
        size=size,
        ranks_per_node=ranks_per_node,
        num_nodes=size // ranks_per_node,
        sharing=min(stride, devices_per_node),
        spans_leaves=nodes > nodes_per_leaf and nodes_per_leaf % block_nodes != 0,
    )


def _counted(
    ranks_of_group: tuple[int, int, int, int],
    devices_per_node: int,
    world_size: int,
    nodes_per_leaf: int,
) -> GroupShape:
    """Any case, by looking at every rank; of a group size, stride, rows and row_stride."""
    import numpy as np

    size, stride, rows, row_stride = ranks_of_group
    ranks = np.arange(world_size)
    base = ranks - ranks // stride % size * stride - ranks // row_stride % rows * row_stride
    group = np.unique(base, return_inverse=True)[1]
    node = ranks // devices_per_node
    nodes = math.ceil(world_size / devices_per_node)
    pair, ranks_held = np.unique(group * nodes + node, return_counts=True)
    pair_group, pair_node = np.divmod(pair, nodes)
    touched = np.bincount(pair_group)
    leaving = touched[pair_group] > 1
    return GroupShape(
        size=size * rows,
        ranks_per_node=int(ranks_held.min()),
        num_nodes=int(touched.max()),
        sharing=int(np.bincount(pair_node[leaving]).max()) if leaving.any() else 0,
        spans_leaves=_over_leaves(touched, pair_node // nodes_per_leaf),
    )


def _over_leaves(touched: Ints, leaf: Ints) -> bool:
    """Whether a group has nodes under several leaves; of the nodes of each group, in their order.

    A group's first and last node frame it.
    """
    last = touched.cumsum() - 1
    first = last - touched + 1
    return bool((leaf[first] != leaf[last]).any())


@lru_cache(maxsize=65536)
def hop_crosses(
    *, stride: int, pp: int, devices_per_node: int, world_size: int | None = None
) -> tuple[bool, ...]:
    """For each hop from pipeline rank r to r + 1, whether it leaves the node for any replica.

    Args:
        stride: distance of neighbouring pipeline ranks.
        pp: pipeline ranks; the result has pp - 1 entries.
        devices_per_node: ranks a node holds.
        world_size: ranks in all, so that only replicas that exist count. Without it, every
            alignment of a replica to the nodes that occurs in a large enough world.

    Raises:
        PlanError: an argument below 1.
    """
    _require_positive(stride=stride, pp=pp, devices_per_node=devices_per_node)
    span = pp * stride
    if stride >= devices_per_node:
        return (True,) * (pp - 1)
    if devices_per_node % span == 0:
        return (False,) * (pp - 1)
    if span % devices_per_node == 0 and devices_per_node % stride == 0:
        return tuple((r + 1) * stride % devices_per_node == 0 for r in range(pp - 1))
    blocks = devices_per_node // math.gcd(span, devices_per_node)
    if world_size is not None:
        blocks = min(blocks, max(1, world_size // span))
    import numpy as np

    sender = np.arange(blocks * pp * stride).reshape(blocks, pp, stride)
    leaves = sender // devices_per_node != (sender + stride) // devices_per_node
    return tuple(bool(hop) for hop in leaves.any(axis=(0, 2))[: pp - 1])


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
