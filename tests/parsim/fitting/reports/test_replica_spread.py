"""Scaling with each model left out: the fit is of the others alone."""

from __future__ import annotations

from statistics import fmean

import pytest

from parsim.fitting.reports.replica_spread import GRID, Ratio, fitted, left_out, ratios


def ratio(model: str, spread: float) -> Ratio:
    """A model whose eight devices lose exactly what this spread says."""
    predicted = tuple((8.0 / (1.0 + GRID)).tolist())
    return Ratio(
        model=model,
        device="d",
        compute="fp16",
        measured=8.0 / (1.0 + spread),
        predicted=predicted,
    )


def test_the_fit_of_one_model_is_its_spread() -> None:
    assert GRID[fitted([ratio("a", 0.1), ratio("a", 0.1)])] == pytest.approx(0.1)


def test_a_model_is_judged_by_the_others() -> None:
    """One of a spread of 20 % beside two of 10 %: it is off by what it loses more."""
    folds = {
        model: (float(GRID[index]), errors)
        for model, _, index, errors in left_out([ratio("a", 0.1), ratio("b", 0.1), ratio("c", 0.2)])
    }
    assert folds["c"][0] == pytest.approx(0.1)
    assert folds["c"][1] == pytest.approx([1.2 / 1.1 - 1.0])
    assert 0.1 <= folds["a"][0] <= 0.2


@pytest.mark.slow
def test_public_ratios_of_models_that_were_left_out() -> None:
    every = ratios()
    errors = [abs(error) for *_, of in left_out(every) for error in of]
    assert len(errors) == 18
    assert fmean(errors) < 0.05
