"""Normal draws: quantiles against the standard library, the largest of n against n draws."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from parsim.sim.lateness.normal import Pairs, exponentials, largest_of, upper_quantile

RNG_SEED = 3
TAILS = np.concatenate([np.logspace(-30, -2, 57), np.linspace(0.01, 0.99, 99)])


def distance(drawn: NDArray[np.floating], power: int = 1) -> float:
    """Kolmogorov's distance to the largest of `power` normal draws, over its 1 % critical value."""
    ordered = np.sort(drawn.ravel())
    cdf = np.array([NormalDist().cdf(float(x)) ** power for x in ordered])
    steps = np.arange(len(cdf)) / len(cdf)
    worst = max((steps + 1 / len(cdf) - cdf).max(), (cdf - steps).max())
    return float(worst * np.sqrt(len(cdf)) / 1.63)


def test_quantiles_are_those_of_the_standard_library() -> None:
    expected = [-NormalDist().inv_cdf(float(tail)) for tail in TAILS]
    assert upper_quantile(TAILS) == pytest.approx(expected, abs=2e-6)


def test_quantiles_of_single_precision_keep_the_upper_tail() -> None:
    result = upper_quantile(TAILS.astype(np.float32))
    expected = [-NormalDist().inv_cdf(float(tail)) for tail in TAILS]
    assert result.dtype == np.float32
    assert result == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("n", [1, 2, 8, 64, 1024])
def test_the_largest_of_n_is_distributed_as_that_of_n_draws(n: int) -> None:
    rng = np.random.default_rng(RNG_SEED)
    assert distance(largest_of(n, exponentials(rng, (20_000,))), n) < 1
    assert distance(rng.standard_normal((20_000, n)).max(axis=1), n) < 1


def test_the_distance_tells_another_n() -> None:
    rng = np.random.default_rng(RNG_SEED)
    assert distance(largest_of(8, exponentials(rng, (20_000,))), 9) > 1.5


@pytest.mark.parametrize("shape", [(20_000,), (3, 6667), (2, 100, 101)])
def test_pairs_are_normal_and_independent(shape: tuple[int, ...]) -> None:
    pairs, rng = Pairs(shape), np.random.default_rng(RNG_SEED)
    (drawn,) = pairs.normal(rng, 1)
    assert drawn.shape == shape
    assert distance(drawn) < 1
    flat = drawn.ravel().astype(np.float64)
    half = len(flat) // 2
    for first, second in ((flat[:half], flat[-half:]), (flat[:-1], flat[1:])):
        for power in (1, 2):  # the radius of a pair is shared: its squares must not correlate
            correlation = np.corrcoef(first**power, second**power)[0, 1]
            assert abs(correlation) < 4 / np.sqrt(half)
    assert not np.array_equal(drawn, pairs.normal(rng, 1)[0])


def test_pairs_drawn_at_once_are_those_drawn_one_by_one() -> None:
    """An odd number of draws, of whose last pair one is left out."""
    pairs = Pairs((3, 7))
    rng, again = (np.random.default_rng(RNG_SEED) for _ in range(2))
    each = [pairs.normal(rng, 1)[0] for _ in range(5)]
    assert np.array_equal(pairs.normal(again, 5), np.array(each))


def test_draws_never_reach_infinity() -> None:
    class Zeros(np.random.Generator):
        def random(self, *_: object, **given: object) -> NDArray[np.float32]:  # type: ignore[override]
            return np.zeros(4, dtype=np.float32)

    drawn = exponentials(Zeros(np.random.PCG64(0)), (4,))
    assert (largest_of(8, drawn) < 6).all()
