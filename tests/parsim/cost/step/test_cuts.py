"""Balanced cuts against every cut of small models, and what their words are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cost.step.chain import Chain
from parsim.cost.step.cuts import cut_words
from parsim.cost.step.cuts.balance import most_balanced
from parsim.cost.step.stages import even_cut


def placed(name: str, pp: int, v: int) -> list[int]:
    """Ranks of stages: round and round, down and back up, or two copies in opposite directions."""
    down = list(range(pp))
    both = [*down, *down[::-1]]
    return {"looped": down * v, "folded": (both * v)[: pp * v], "two-way": both}[name]


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Layers, all alike or of several kinds, on ranks with one stage or several."""
    names = st.sampled_from(["looped", "folded", "two-way"])
    name, pp, v = draw(st.tuples(names, st.integers(2, 3), st.integers(1, 3)))
    stages = pp if name == "two-way" else pp * v
    ranks = placed(name, pp, v)
    count = draw(st.integers(stages, stages + 4))
    kinds = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    inner = draw(st.lists(st.sampled_from(kinds), min_size=count - 2, max_size=count - 2))
    ends = draw(st.tuples(st.integers(0, 5), st.integers(1, 20)))
    return Chain.on(np.array([ends[0], *inner, ends[1]], dtype=float), ranks, stages)


def every_cut(chain: Chain) -> Iterator[tuple[int, ...]]:
    count = len(chain.seconds)
    for inner in combinations(range(1, count), chain.num_stages - 1):
        yield tuple(end - first for first, end in pairwise((0, *inner, count)))


@given(chains())
def test_no_cut_has_a_less_busy_rank_or_as_busy_a_one_and_a_smaller_largest_stage(
    chain: Chain,
) -> None:
    def judged(cut: tuple[int, ...]) -> tuple[float, float]:
        return chain.busiest(cut), chain.largest(cut)

    best = most_balanced(chain)
    assert min(best) > 0
    assert judged(best) == pytest.approx(min(map(judged, every_cut(chain))))


@given(chains())
def test_of_stages_alone_no_cut_has_a_smaller_largest_one_or_is_more_alike(chain: Chain) -> None:
    def judged(cut: tuple[int, ...]) -> tuple[float, float]:
        return chain.largest(cut), float((chain.stages(cut) ** 2).sum())

    best = judged(chain.alone_balanced)
    assert best == pytest.approx(min(map(judged, every_cut(chain))))


@pytest.mark.parametrize("pp", [4, 8, 16])
@pytest.mark.parametrize("v", [2, 3, 6])
@pytest.mark.parametrize("layers", [96, 126])
def test_alike_layers_of_a_large_model_go_where_there_is_room(pp: int, v: int, layers: int) -> None:
    """Ranks hold as many whole layers as they have room for beside embedding and head.

    A bound is kept by some cut where that room is for all layers, whatever the stages.
    """
    chain = Chain.on(np.array([2.0, *[8.0] * layers, 40.0]), [*range(pp)] * v, pp * v)
    beside = [2, *[0] * (pp - 2), 40]
    bounds = range(40 + 8 * (v - 1), 1000)
    least = next(b for b in bounds if sum((b - each) // 8 for each in beside) >= layers)
    assert chain.busiest(most_balanced(chain)) == least


def test_the_head_takes_layers_from_all_stages_of_its_rank() -> None:
    """Even: 2 2 2 2 and the head, worth four layers; rank 1 has eight of the twelve."""
    chain = Chain.on(np.array([0.0, *[1.0] * 8, 4.0]), [0, 1, 0, 1], 4)
    assert chain.busiest((3, 2, 2, 3)) == 8.0
    best = most_balanced(chain)
    assert (chain.busiest(best), chain.largest(best)) == (6.0, 4.0)


def test_an_even_cut_stays_where_nothing_is_better() -> None:
    chain = Chain.on(np.ones(12), [0, 1, 2] * 2, 6)
    assert most_balanced(chain) == even_cut(12, 6)


@pytest.mark.parametrize(
    ("cut", "words"), [((9, 9, 8, 6), "9-9-8-6"), ((7, *[8] * 14, 7), "7-8x14-7"), ((2, 2), "2-2")]
)
def test_words(cut: tuple[int, ...], words: str) -> None:
    assert cut_words(cut) == words
