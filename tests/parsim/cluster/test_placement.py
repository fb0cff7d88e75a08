"""Groups of ranks on nodes: drawn cases, and the closed forms against counting rank by rank."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cluster.placement import GroupShape, group_shape, hop_crosses
from parsim.errors import PlanError


def counted(
    *,
    size: int,
    stride: int,
    devices_per_node: int,
    world_size: int,
    nodes_per_leaf: int,
    rows: int = 1,
    row_stride: int = 1,
) -> GroupShape:
    """The definition, in sets and loops."""
    groups = [
        [base + i * stride + j * row_stride for j in range(rows) for i in range(size)]
        for base in range(world_size)
        if base // stride % size == 0 and base // row_stride % rows == 0
    ]
    nodes = [[rank // devices_per_node for rank in group] for group in groups]
    guests: dict[int, int] = {}
    for touched in nodes:
        for node in set(touched) if len(set(touched)) > 1 else ():
            guests[node] = guests.get(node, 0) + 1
    return GroupShape(
        size=size * rows,
        ranks_per_node=min(touched.count(node) for touched in nodes for node in touched),
        num_nodes=max(len(set(touched)) for touched in nodes),
        sharing=max(guests.values(), default=0),
        spans_leaves=any(len({n // nodes_per_leaf for n in touched}) > 1 for touched in nodes),
    )


@st.composite
def cases(draw: st.DrawFn, powers_of_two: bool) -> dict[str, int]:
    def number(most: int) -> int:
        if powers_of_two:
            return 1 << draw(st.integers(0, most.bit_length() - 1))
        return draw(st.integers(1, most))

    size, stride = number(16), number(16)
    return {
        "size": size,
        "stride": stride,
        "devices_per_node": number(16),
        "world_size": size * stride * draw(st.integers(1, 6)),
        "nodes_per_leaf": draw(st.integers(1, 9)),
    }


@given(cases(powers_of_two=True))
def test_aligned_equals_definition(case: dict[str, int]) -> None:
    assert group_shape(**case) == counted(**case)


@given(cases(powers_of_two=False))
def test_any_case_equals_definition(case: dict[str, int]) -> None:
    assert group_shape(**case) == counted(**case)


@given(cases(powers_of_two=True), st.integers(1, 3), st.integers(1, 4))
def test_rows_with_other_ranks_between_them(case: dict[str, int], rows: int, between: int) -> None:
    """Ranks of dp x cp with pipeline ranks between: rows of cp, one for each replica."""
    apart = case["size"] * case["stride"] * between
    rowed = {**case, "rows": rows, "row_stride": apart, "world_size": apart * rows * 2}
    assert group_shape(**rowed) == counted(**rowed)


def test_a_row_in_each_node() -> None:
    """4 replicas x cp 2 with 4 pipeline ranks between, nodes of 8: 2 ranks in each of 4 nodes."""
    first = group_shape(
        size=2,
        stride=1,
        rows=4,
        row_stride=8,
        devices_per_node=8,
        world_size=32,
        nodes_per_leaf=20,
    )
    assert (first.size, first.ranks_per_node, first.num_nodes, first.sharing) == (8, 2, 4, 4)


def shape(
    size: int,
    stride: int,
    world_size: int = 1024,
    devices_per_node: int = 8,
    nodes_per_leaf: int = 20,
) -> GroupShape:
    return group_shape(
        size=size,
        stride=stride,
        devices_per_node=devices_per_node,
        world_size=world_size,
        nodes_per_leaf=nodes_per_leaf,
    )


def test_drawn_case() -> None:
    # node 0    node 1    node 2    node 3
    # a b a b | a b a b | c d c d | c d c d
    assert shape(4, 2, 16, devices_per_node=4) == GroupShape(4, 2, 2, 2, False)


def test_misaligned_case() -> None:
    # node 0    node 1    node 2
    # a a a b | b b c c | c d d d       groups of 3 on nodes of 4: b and c leave and are split
    assert shape(3, 1, 12, devices_per_node=4) == GroupShape(3, 1, 2, 2, False)


def test_tensor_group_fills_a_node() -> None:
    assert shape(8, 1) == GroupShape(8, 8, 1, 0, False)


def test_data_group_outside_tensor_group() -> None:
    # tp 8, dp 16 in blocks of 128 ranks = 16 nodes: 8 groups in every node, one rank each.
    # Blocks start at nodes 0, 16, 32 ...; the border at node 20 cuts the second one.
    assert shape(16, 8) == GroupShape(16, 1, 16, 8, True)


def test_blocks_that_divide_a_leaf_group_stay_under_it() -> None:
    assert shape(4, 8, nodes_per_leaf=20).spans_leaves is False
    assert shape(8, 8, nodes_per_leaf=20).spans_leaves is True
    assert shape(8, 8, world_size=128, nodes_per_leaf=20).spans_leaves is False


def test_group_of_one_is_nowhere_else() -> None:
    assert shape(1, 512) == GroupShape(1, 1, 1, 0, False)


def test_largest_cluster_is_counted_only_when_misaligned(monkeypatch: pytest.MonkeyPatch) -> None:
    import parsim.cluster.placement as placement

    def refuse(*arguments: int) -> GroupShape:
        raise AssertionError(arguments)

    monkeypatch.setattr(placement, "_counted", refuse)
    group_shape.cache_clear()
    for size_log in range(15):
        for stride_log in range(15 - size_log):
            shape(2**size_log, 2**stride_log, world_size=16384)
    group_shape.cache_clear()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"size": 0}, "size=0 must be at least 1"),
        ({"nodes_per_leaf": -1}, "nodes_per_leaf=-1 must be at least 1"),
        (
            {"world_size": 20},
            "groups of size=4 and stride=2 do not tile world_size=20; it must be a multiple of 8",
        ),
    ],
)
def test_illegal_groups(change: dict[str, int], expected: str) -> None:
    case = {"size": 4, "stride": 2, "devices_per_node": 8, "world_size": 16, "nodes_per_leaf": 2}
    with pytest.raises(PlanError) as error:
        group_shape(**(case | change))
    assert str(error.value) == expected


def hops_by_definition(
    stride: int, pp: int, devices_per_node: int, world_size: int
) -> tuple[bool, ...]:
    pipelines = [
        [block + offset + r * stride for r in range(pp)]
        for block in range(0, world_size, pp * stride)
        for offset in range(stride)
    ]
    crossed = [
        [a // devices_per_node != b // devices_per_node for a, b in pairwise(ranks)]
        for ranks in pipelines
    ]
    return tuple(any(hops) for hops in zip(*crossed, strict=True))


sizes = st.integers(1, 12)


@given(sizes, sizes, sizes, sizes)
def test_hops_equal_definition(stride: int, pp: int, devices_per_node: int, blocks: int) -> None:
    world_size = stride * pp * blocks
    assert hop_crosses(
        stride=stride, pp=pp, devices_per_node=devices_per_node, world_size=world_size
    ) == hops_by_definition(stride, pp, devices_per_node, world_size)


@given(sizes, sizes, sizes)
def test_hops_without_world_are_those_of_a_large_one(
    stride: int, pp: int, devices_per_node: int
) -> None:
    world_size = stride * pp * devices_per_node
    assert hop_crosses(
        stride=stride, pp=pp, devices_per_node=devices_per_node
    ) == hops_by_definition(stride, pp, devices_per_node, world_size)


def test_every_second_hop_leaves() -> None:
    # node 0: stages 0 0 0 0 1 1 1 1    node 1: stages 2 2 2 2 3 3 3 3
    assert hop_crosses(stride=4, pp=4, devices_per_node=8) == (False, True, False)


def test_one_stage_has_no_hop() -> None:
    assert hop_crosses(stride=8, pp=1, devices_per_node=8) == ()


def test_illegal_hops() -> None:
    with pytest.raises(PlanError) as error:
        hop_crosses(stride=0, pp=2, devices_per_node=8)
    assert str(error.value) == "stride=0 must be at least 1"
