"""The one solver of all fits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.arrays import Array
from parsim.least_squares import FAILURES, Descent, Loss, least_loss, numeric_slopes

ROWS = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
TRUE = np.array([0.3, -0.2])
LINES = Loss(weight=2.0, prior=np.zeros(2))


def misses(moves: Array) -> Array:
    errors: Array = ROWS @ (moves - TRUE)
    return errors


def fitted(loss: Loss = LINES, **descent: object) -> Array:
    how = Descent(**{"rounds": 60, "needed": 1e-12, **descent})  # type: ignore[arg-type]
    return least_loss(misses, numeric_slopes(misses, 1e-4), loss, how)[0]


def test_lines_are_found() -> None:
    assert fitted() == pytest.approx(TRUE, abs=1e-6)


def test_one_bad_row_moves_a_cornered_fit_by_less() -> None:
    def spoiled(moves: Array) -> Array:
        return np.asarray(misses(moves) + np.array([0.0, 5.0, 0.0, 0.0]))

    slopes, how = numeric_slopes(spoiled, 1e-4), Descent(rounds=200)
    plain, _ = least_loss(spoiled, slopes, LINES, how)
    robust, _ = least_loss(spoiled, slopes, Loss(weight=2.0, prior=np.zeros(2), corner=0.01), how)
    assert np.abs(robust - TRUE).max() < 0.02 < np.abs(plain - TRUE).max()


def test_moves_stay_within_limits() -> None:
    assert fitted(limits=(-0.1, 0.1)) == pytest.approx([0.1, -0.1])


def test_no_step_is_longer_than_the_stride() -> None:
    assert np.abs(fitted(rounds=1, stride=0.05)).max() == pytest.approx(0.05)


def test_a_fit_ends_after_so_many_failures() -> None:
    calls = []

    def stuck(moves: Array) -> Array:
        calls.append(moves)
        return np.ones(3)

    how = Descent(rounds=100, enough=0.0)
    moves, least = least_loss(
        stuck, lambda *_: np.ones((3, 1)), Loss(weight=2.0, prior=np.zeros(1)), how
    )
    assert (moves.tolist(), least, len(calls)) == ([0.0], 3.0, 1 + FAILURES)


@given(error=st.floats(-3, 3), corner=st.floats(0.01, 2))
def test_the_loss_is_hubers(error: float, corner: float) -> None:
    loss = Loss(weight=1.0, prior=np.zeros(1), corner=corner)
    size = abs(error)
    wanted = size**2 / 2 if size <= corner else corner * (size - corner / 2)
    assert loss(np.array([error]), np.zeros(1)) == pytest.approx(wanted)


def test_a_prior_alone_brings_the_moves_home() -> None:
    loss = Loss(weight=1.0, prior=np.array([2.0]))
    assert loss.step(np.zeros((1, 1)), np.ones(1), np.array([0.7])) == pytest.approx([-0.7])
