"""Expected maxima of normal draws, against closed forms and sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from parsim.cost.order_statistics import expected_maximum, last_of_node, later_than_of_node


def test_closed_forms() -> None:
    alone, two, three = expected_maximum([1, 2, 3])
    assert alone == pytest.approx(0.0, abs=1e-12)
    assert two == pytest.approx(1.0 / math.sqrt(math.pi), rel=1e-9)
    assert three == pytest.approx(1.5 / math.sqrt(math.pi), rel=1e-9)


def test_sampled() -> None:
    drawn = np.random.default_rng(7).standard_normal((200_000, 8)).max(axis=1)
    (exact,) = expected_maximum([8])
    assert abs(float(drawn.mean()) - exact) < 4.0 * float(drawn.std()) / math.sqrt(len(drawn))


def test_grows_with_the_count_and_keeps_the_shape() -> None:
    counts = np.array([[1, 2, 4], [8, 64, 1_000_000]])
    maxima = expected_maximum(counts)
    assert maxima.shape == counts.shape
    assert np.all(np.diff(maxima.ravel()) > 0)


def test_no_draws_have_no_maximum() -> None:
    with pytest.raises(ValueError, match="n=0"):
        expected_maximum([0])


def test_beyond_a_node_each_doubling_adds_less() -> None:
    late = later_than_of_node([1, 8, 16, 32, 64, 2048, 4096])
    assert late[0] == late[1] == 0.0
    assert late[2] == pytest.approx(float(np.diff(expected_maximum([8, 16]))[0]))
    assert late[2] > late[3] - late[2] > late[4] - late[3] > late[6] - late[5] > 0.0


def test_what_a_node_waits_and_what_is_beyond_add_up() -> None:
    counts = [1, 2, 8, 64]
    together = last_of_node(counts) + later_than_of_node(counts)
    assert together == pytest.approx(expected_maximum(counts))
