"""Learning rates by hand."""

from __future__ import annotations

import pytest

from executor.training.update_rule import Rate


def test_a_constant_rate() -> None:
    assert [Rate(peak=2.0).at(step) for step in (0, 7, 10**6)] == [2.0, 2.0, 2.0]


def test_it_rises_and_falls_to_a_tenth() -> None:
    rate = Rate(peak=1.0, warmup=4, decay="cosine", steps=9)
    assert [rate.at(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    # behind the warm-up x = 0, 1/4, 1/2, 3/4, 1: 0.1 + 0.45 (1 + cos(pi x))
    expected = [1.0, 0.1 + 0.45 * (1 + 0.5**0.5), 0.55, 0.1 + 0.45 * (1 - 0.5**0.5), 0.1]
    assert [rate.at(step) for step in range(4, 9)] == pytest.approx(expected)
    assert rate.at(100) == pytest.approx(0.1)


def test_a_training_shorter_than_its_warmup() -> None:
    assert Rate(peak=1.0, warmup=10, decay="cosine", steps=5).at(4) == 0.5
