from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import InputError
from parsim.sim.step.folding import Communicator, Edge, Folding, fold
from tests.parsim.sim.step.mesh import mesh_links


def stage_colours(pp: int, dp: int, tp: int) -> list[object]:
    return [rank // (dp * tp) for rank in range(pp * dp * tp)]


def folded_mesh(pp: int, dp: int, tp: int, slow: tuple[int, ...] = ()) -> Folding:
    colours = [(stage, rank in slow) for rank, stage in enumerate(stage_colours(pp, dp, tp))]
    return fold(colours, *mesh_links(pp, dp, tp))


def test_equal_ranks_fold_to_one_a_stage() -> None:
    folding = folded_mesh(4, 4, 2)
    assert folding.num_classes == 4
    assert folding.representative.tolist() == [0, 8, 16, 24]
    assert folding.multiplicity.tolist() == [8, 8, 8, 8]


def test_one_slow_rank_splits_its_replica_and_its_group() -> None:
    folding = folded_mesh(4, 4, 2, slow=(10,))
    assert folding.num_classes == 16
    # on each stage: the column of rank 10, its tensor-parallel peer, and the rest of both columns
    assert sorted(folding.multiplicity[:4].tolist()) == [1, 1, 3, 3]


def test_a_slow_replica_stays_folded_inside() -> None:
    slow = tuple(rank for rank in range(32) if rank // 2 % 4 == 1)
    assert folded_mesh(4, 4, 2, slow).num_classes == 8


def test_ranks_that_all_differ_do_not_fold() -> None:
    folding = fold(range(32), *mesh_links(4, 4, 2))
    assert folding.class_of.tolist() == list(range(32))


def test_ends_of_a_pipeline_differ_without_being_told() -> None:
    # nobody sends to the first of four and the last sends to nobody: a path folds by position
    assert fold([0] * 4, *mesh_links(4, 1, 1)).num_classes == 4
    assert fold([0] * 4, *mesh_links(4, 1, 1, wrap=True)).num_classes == 1


def test_link_classes_are_told_apart() -> None:
    edges = [Edge(0, 1, "nvlink"), Edge(2, 3, "network")]
    assert fold([0] * 4, edges=edges).num_classes == 4
    assert fold([0] * 4, edges=[edge._replace(link="nvlink") for edge in edges]).num_classes == 2


def test_direction_of_messages_counts() -> None:
    assert fold([0, 0], edges=[Edge(0, 1, "x")]).num_classes == 2
    assert fold([0, 0], edges=[Edge(0, 1, "x"), Edge(1, 0, "x")]).num_classes == 1


def test_kind_and_size_of_communicators_count() -> None:
    pairs = [Communicator("tp", (0, 1)), Communicator("dp", (2, 3))]
    assert fold([0] * 4, pairs).num_classes == 2
    assert (
        fold([0] * 5, [Communicator("tp", (0, 1)), Communicator("tp", (2, 3, 4))]).num_classes == 2
    )


def test_the_number_of_equal_members_counts() -> None:
    # two slow ranks in one group, one in the other: a multiset, not a set
    groups = [Communicator("tp", (0, 1, 2)), Communicator("tp", (3, 4, 5))]
    assert fold([1, 1, 0, 1, 0, 0], groups).num_classes == 4


def test_nothing_folds_to_nothing() -> None:
    assert fold([]).num_classes == 0
    assert fold(["a", "b", "a"]).class_of.tolist() == [0, 1, 0]


def test_unknown_ranks_are_refused() -> None:
    with pytest.raises(InputError, match=r"communicator 'tp' names rank 4; allowed: 0 to 3"):
        fold([0] * 4, [Communicator("tp", (3, 4))])
    with pytest.raises(InputError, match=r"edge 0 -> 9 names a rank outside 0 to 3"):
        fold([0] * 4, edges=[Edge(0, 9, "x")])


Sights = tuple[Counter[object], Counter[object], Counter[object]]


def sees(
    rank: int, classes: list[int], communicators: list[Communicator], edges: list[Edge]
) -> Sights:
    """Everything around a rank in terms of classes, written out plainly."""
    meets: Counter[object] = Counter(
        (kind, tuple(sorted(classes[r] for r in ranks)))
        for kind, ranks in communicators
        if rank in ranks
    )
    sends: Counter[object] = Counter((e.link, classes[e.target]) for e in edges if e.source == rank)
    hears: Counter[object] = Counter((e.link, classes[e.source]) for e in edges if e.target == rank)
    return meets, sends, hears


def random_structure(seed: int) -> tuple[list[int], list[Communicator], list[Edge]]:
    rng = random.Random(seed)
    n = rng.randint(1, 12)
    colours = [rng.randint(0, 1) for _ in range(n)]
    communicators = [
        Communicator(rng.choice("ab"), tuple(rng.sample(range(n), rng.randint(1, n))))
        for _ in range(rng.randint(0, 5))
    ]
    edges = [
        Edge(rng.randrange(n), rng.randrange(n), rng.choice("xy")) for _ in range(rng.randint(0, 8))
    ]
    return colours, communicators, edges


@given(st.integers(0, 10**6))
def test_partition_is_equitable_and_refines_the_colours(seed: int) -> None:
    colours, communicators, edges = random_structure(seed)
    classes = fold(colours, communicators, edges).class_of.tolist()
    for a in range(len(colours)):
        for b in range(a):
            if classes[a] == classes[b]:
                assert colours[a] == colours[b]
                assert sees(a, classes, communicators, edges) == sees(
                    b, classes, communicators, edges
                )


@given(st.integers(0, 10**6))
def test_partition_is_the_coarsest(seed: int) -> None:
    """Plain refinement, one round for each rank, ends in the same partition."""
    colours, communicators, edges = random_structure(seed)
    classes = list(colours)
    for _ in colours:
        keys = [
            (classes[rank], *(frozenset(part.items()) for part in parts))
            for rank, parts in enumerate(
                [sees(rank, classes, communicators, edges) for rank in range(len(classes))]
            )
        ]
        names = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        classes = [names[key] for key in keys]
    assert fold(colours, communicators, edges).class_of.tolist() == classes


def test_sixteen_thousand_ranks() -> None:
    slow = (5000,)
    folding = folded_mesh(16, 128, 8, slow)
    # on every stage: the slow column, its replica, its tensor-parallel column, and the rest
    assert folding.num_classes == 16 * 4
    assert sorted(folding.multiplicity[:4].tolist()) == [1, 7, 127, 889]
    assert np.bincount(folding.class_of).sum() == 16384
