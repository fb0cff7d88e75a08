"""Balanced cuts against every cut of small models, and what their words are."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.cost.step.cuts import SingleLayers, cut_words, most_balanced

SECONDS = st.lists(st.integers(1, 9).map(float), min_size=2, max_size=9)


def layers(seconds: list[float]) -> SingleLayers:
    nothing = np.zeros(len(seconds))
    return SingleLayers(
        forward=np.array(seconds), backward=nothing, parameters=nothing, sent=nothing
    )


@given(SECONDS, st.data())
def test_no_cut_has_a_faster_slowest_stage_or_is_as_fast_and_more_alike(
    seconds: list[float], data: st.DataObject
) -> None:
    stages = data.draw(st.integers(2, len(seconds)))

    def judged(cut: tuple[int, ...]) -> tuple[float, float]:
        ends = np.cumsum([0, *cut])
        sums = [sum(seconds[a:b]) for a, b in pairwise(ends)]
        return max(sums), sum(each**2 for each in sums)

    inner = combinations(range(1, len(seconds)), stages - 1)
    every = [tuple(np.diff([0, *ends, len(seconds)])) for ends in inner]
    best = most_balanced(layers(seconds), stages)
    assert judged(best) == min(map(judged, every))


def test_a_head_worth_two_layers() -> None:
    cut = most_balanced(layers([1.0] * 7 + [3.4]), 4)
    assert (sorted(cut[:3]), cut[3]) == ([2, 2, 3], 1)


@pytest.mark.parametrize(
    ("cut", "words"), [((9, 9, 8, 6), "9-9-8-6"), ((7, *[8] * 14, 7), "7-8x14-7"), ((2, 2), "2-2")]
)
def test_words(cut: tuple[int, ...], words: str) -> None:
    assert cut_words(cut) == words
