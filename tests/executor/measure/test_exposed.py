"""Waits are given to the transfers that ran meanwhile: by hand, and no moment twice."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.measure.exposed import Transfer, attribute, exposed_of, gaps, merged, overlap

Interval = tuple[float, float]


def dp(start: float, end: float) -> Transfer:
    return Transfer("dp", "all_reduce", start, end)


def test_a_wait_belongs_to_what_ends_first() -> None:
    """Buckets 0 and 1 of the drawing in the module."""
    result = attribute([dp(1.0, 6.0), dp(2.0, 9.0)], [(4.0, 8.0)], extend=False)
    assert [entry.exposed for entry in result] == [((4.0, 6.0),), ((6.0, 8.0),)]
    assert [entry.waited() for entry in result] == [2.0, 2.0]


def test_what_is_waited_for_reaches_over_the_wait() -> None:
    result = attribute([dp(1.5, 3.0)], [(1.0, 3.5)], extend=True)
    assert result == [Transfer("dp", "all_reduce", 1.0, 3.5, ((1.0, 3.5),))]


def test_a_wait_for_nothing_is_work() -> None:
    assert attribute([dp(1.0, 2.0)], [(3.0, 4.0)], extend=True) == [dp(1.0, 2.0)]


def test_what_nobody_waits_for_is_hidden() -> None:
    result = attribute([dp(1.0, 2.0), dp(3.0, 5.0)], [(4.5, 5.0)], extend=True)
    assert [entry.waited() for entry in result] == [0.0, 0.5]


def test_gaps_are_what_is_left() -> None:
    assert list(gaps([(1.0, 2.0), (1.5, 3.0), (4.0, 9.0)], (0.0, 5.0))) == [(0.0, 1.0), (3.0, 4.0)]
    assert list(gaps([], (0.0, 5.0))) == [(0.0, 5.0)]
    assert list(gaps([(0.0, 9.0)], (1.0, 5.0))) == []


def test_merged_intervals_neither_overlap_nor_touch() -> None:
    assert list(merged([(3.0, 4.0), (0.0, 1.0), (1.0, 2.0)])) == [(0.0, 2.0), (3.0, 4.0)]


# multiples of 1/8, so that sums are exact
moments = st.integers(0, 80).map(lambda eighth: eighth / 8)
intervals = st.lists(st.tuples(moments, moments).filter(lambda pair: pair[0] < pair[1]), max_size=8)


@given(running=intervals, waits=intervals, extend=st.booleans())
def test_no_moment_is_counted_twice(
    running: list[Interval], waits: list[Interval], extend: bool
) -> None:
    result = attribute([dp(*entry) for entry in running], waits, extend=extend)
    parts = exposed_of(result)
    assert all(a[1] <= b[0] for a, b in pairwise(parts))
    for entry in result:
        assert entry.waited() <= entry.end - entry.start
        assert all(entry.start <= begin and end <= entry.end for begin, end in entry.exposed)
    busy = list(merged((entry.start, entry.end) for entry in result))
    both = sum(overlap(busy, *wait) for wait in merged(waits))
    assert sum(entry.waited() for entry in result) == pytest.approx(both)
