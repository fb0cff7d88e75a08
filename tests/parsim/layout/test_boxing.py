"""Changes of layout: what each is, its dual, its bytes, and chains over several axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from parsim.errors import PlanError
from parsim.layout.boxing import Step, chain, collective_bytes, share
from parsim.layout.mesh import B, Mesh, NdSbp, P, S, Sbp, dual, local_shape, read_sbp, words

BYTES = 4_096.0
Tensor = NDArray[np.float64]
Held = dict[int, Tensor]
Sizes = tuple[int, ...]
Steps = Sequence[Step]


def wire(step: Step, before: float, after: float) -> float:
    """Bytes that a device of a mesh of 2 sends: S of an all-reduce, S / 2 of others."""
    sent = 1.0 if step.collective == "all_reduce" else 0.5
    return sent * collective_bytes(step, BYTES, before, after)


@pytest.mark.parametrize(
    ("source", "target", "kind", "back"),
    [
        (S(0), B, "all_gather", "reduce_scatter"),
        (P, B, "all_reduce", "all_reduce"),
        (P, S(1), "reduce_scatter", "all_gather"),
        (S(0), S(1), "all_to_all", "all_to_all"),
        (B, S(0), None, None),
        (B, P, None, None),
        (S(0), P, None, None),
    ],
)
def test_each_change_has_its_collective_and_its_dual(
    source: Sbp, target: Sbp, kind: str | None, back: str | None
) -> None:
    step = Step(0, source, target)
    assert step.collective == kind
    assert step.backward == Step(0, target.dual, source.dual)
    assert step.backward.collective == back
    assert step.backward.backward == step


def test_bytes_are_those_of_nccl_tests() -> None:
    """Four devices with a quarter each: S of an all-gather is what all have behind it."""
    whole, part = 1.0, 0.25
    assert collective_bytes(Step(0, S(0), B), BYTES, part, whole) == BYTES
    assert collective_bytes(Step(0, P, S(0)), BYTES, whole, part) == BYTES
    assert collective_bytes(Step(0, P, B), BYTES, whole, whole) == BYTES
    assert collective_bytes(Step(0, S(0), S(1)), BYTES, part, part) == BYTES / 4


def test_a_change_on_two_axes_is_a_chain() -> None:
    steps = chain((S(0), P), (B, S(1)), (2, 2), wire)
    assert {(step.axis, step.source, step.target) for step in steps} == {
        (0, S(0), B),
        (1, P, S(1)),
    }


def test_an_outer_axis_waits_for_the_inner_parts_of_one_dimension() -> None:
    """Rows that both axes cut: the outer axis cannot be put together alone."""
    steps = chain((S(0), S(0)), (B, S(0)), (2, 2), wire)
    assert [step.axis for step in steps] == [1, 0, 1]
    assert steps[0].target == B
    assert steps[-1] == Step(1, B, S(0))


def _played(steps: Steps, source: NdSbp, sizes: Sizes) -> tuple[Held, Mesh, Tensor]:
    """A vector of 8 values on all devices of a mesh, taken through a chain."""
    mesh, whole = Mesh((("a", sizes[0]), ("b", sizes[1]))), np.arange(64.0).reshape(8, 8)
    parts_of_ranks = {
        rank: _cut(whole, source, mesh.coordinates(rank), sizes) for rank in range(mesh.ranks)
    }
    for step in steps:
        after = {}
        for group in mesh.groups((step.axis,)):
            parts = [parts_of_ranks[rank] for rank in group]
            if step.source.splits:
                tensor = np.concatenate(parts, axis=step.source.dim)
            else:
                tensor = np.sum(parts, axis=0) if step.source == P else parts[0]
            for index, rank in enumerate(group):
                after[rank] = _one(tensor, step.target, index, len(group))
        parts_of_ranks = after
    return parts_of_ranks, mesh, whole


def _one(tensor: Tensor, part: Sbp, index: int, size: int) -> Tensor:
    if part.splits:
        return np.split(tensor, size, axis=part.dim)[index]
    return tensor if part == B or index == 0 else np.zeros_like(tensor)


def _cut(tensor: Tensor, layout: NdSbp, places: Sizes, sizes: Sizes) -> Tensor:
    for part, index, size in zip(layout, places, sizes, strict=True):
        tensor = _one(tensor, part, index, size)
    return tensor


@pytest.mark.parametrize("source", list(product((S(0), S(1), B, P), repeat=2)), ids=words)
@pytest.mark.parametrize("target", list(product((S(0), S(1), B, P), repeat=2)), ids=words)
def test_every_chain_ends_with_the_tensor_in_its_layout(source: NdSbp, target: NdSbp) -> None:
    sizes = (2, 2)
    steps = chain(source, target, sizes, wire)
    parts_of_ranks, mesh, whole = _played(steps, source, sizes)
    if P in target:
        total = np.zeros_like(whole)
        _add(total, parts_of_ranks, target, mesh, sizes)
        np.testing.assert_array_equal(total, whole)
        return
    for rank, part in parts_of_ranks.items():
        np.testing.assert_array_equal(part, _cut(whole, target, mesh.coordinates(rank), sizes))


def _add(total: Tensor, parts_of_ranks: Held, target: NdSbp, mesh: Mesh, sizes: Sizes) -> None:
    """Put summands and parts together, copies once."""
    numbers = np.arange(float(total.size)).reshape(total.shape)
    for rank, part in parts_of_ranks.items():
        places = mesh.coordinates(rank)
        copies = [index for index, sbp in zip(places, target, strict=True) if sbp == B]
        if any(copies):
            continue
        splits = tuple(sbp if sbp.splits else B for sbp in target)
        where = _cut(numbers, splits, places, sizes)
        np.add.at(total.reshape(-1), where.reshape(-1).astype(np.int64), part.reshape(-1))


def test_layouts_read_as_they_are_written() -> None:
    assert read_sbp("B, s(1)", 2) == (B, S(1))
    assert words(dual((B, S(1), P))) == "P,S(1),B"
    assert local_shape((8, 6), (S(1), S(2)), (2, 3)) == (4, 2)
    assert share((S(0), B), (2, 4)) == 0.5
    with pytest.raises(PlanError, match="'X' is none of S"):
        read_sbp("B,X", 2)
    with pytest.raises(PlanError, match="has 1 parts, but the mesh has 2 axes"):
        read_sbp("B", 2)


def test_groups_of_a_mesh() -> None:
    mesh = Mesh((("rows", 2), ("cols", 3)))
    assert mesh.groups((1,)) == ((0, 1, 2), (3, 4, 5))
    assert mesh.groups((0,)) == ((0, 3), (1, 4), (2, 5))
    assert mesh.groups((0, 1)) == (tuple(range(6)),)
    assert mesh.groups(()) == tuple((rank,) for rank in range(6))
    assert mesh.coordinates(4) == (1, 1)
    assert mesh.repeated(2).names == ("replicas", "rows", "cols")
