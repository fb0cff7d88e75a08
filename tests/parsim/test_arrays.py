"""Distinct cases are kept once, and every entry finds its value again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim import arrays as module
from parsim.arrays import distinct

sizes = st.lists(st.integers(1, 5), min_size=1, max_size=2 * module.FEW)


@given(m=sizes, n=st.integers(1, 10**9))
def test_entries_are_found_again(m: list[int], n: int) -> None:
    columns, back, shape = distinct(np.array(m, dtype=np.float64), n)
    assert shape == (len(m),)
    assert len(columns[0]) == len(set(m))
    entries = columns[0] if back is None else columns[0][back]
    assert entries.tolist() == m
    assert set(columns[1]) == {n}


def test_entries_broadcast() -> None:
    columns, back, shape = distinct(np.array([1.0, 2.0]), np.array([[1.0], [1.0], [3.0]]))
    assert shape == (3, 2)
    assert back is not None
    assert columns[0][back].reshape(shape).tolist() == [[1.0, 2.0]] * 3
    assert len(columns[0]) == 4


def test_two_cases_of_one_sum_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 0)
    monkeypatch.setattr(module, "_WEIGHTS", np.ones(8))  # now (2, 3) and (3, 2) collide
    columns, back, _ = distinct(np.array([2.0, 3.0, 2.0]), np.array([3.0, 2.0, 3.0]))
    assert back is not None
    assert columns[0][back].tolist() == [2.0, 3.0, 2.0]
    assert columns[1][back].tolist() == [3.0, 2.0, 3.0]
