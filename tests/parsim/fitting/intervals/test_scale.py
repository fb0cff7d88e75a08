"""The scale of errors: found again in made-up runs, and never far from its prior without runs."""

from __future__ import annotations

import numpy as np
import pytest

from parsim.fitting.intervals.scale import PRIOR, Observed, fit_scale
from parsim.sim.confidence.known_errors import SLOWER, scale
from parsim.sim.confidence.step_parts import Parts

RANDOM = np.random.default_rng(7)
TRUE = {
    "kernels": 0.02,
    "host": 0.3,
    "exchange": 0.12,
    "skew": 0.2,
    "quantized": 0.1,
    "pressed": 0.05,
}


def made(runs: int, weights: dict[str, float]) -> Observed:
    """Laplace errors of runs whose parts differ."""
    parts = [
        Parts(host=float(h), within=float(w), quantized=float(q))
        for h, w, q in zip(
            RANDOM.uniform(0.0, 0.8, runs),
            RANDOM.uniform(0.0, 0.4, runs),
            RANDOM.integers(0, 2, runs),
            strict=True,
        )
    ]
    low, high = (
        np.array([scale(weights, part, slower=side) for part in parts]) for side in (False, True)
    )
    size = RANDOM.exponential(1.0, runs)
    up = RANDOM.uniform(0.0, 1.0, runs) < high / (low + high)
    errors = np.where(up, size * high, -size * low)
    return Observed.of(parts, errors, np.ones(runs), ["one group"] * runs)


def test_columns_are_the_scale_of_each_run() -> None:
    observed = made(5, TRUE)
    parts = [
        Parts(host=float(h), within=float(e), quantized=float(q))
        for h, e, q in zip(
            observed.parts["host"],
            observed.parts["exchange"],
            observed.parts["quantized"],
            strict=True,
        )
    ]
    for side in (False, True):
        known = [scale(TRUE, part, slower=side) for part in parts]
        assert observed.scale(TRUE, slower=side) == pytest.approx(known)


def test_what_makes_runs_hard_is_found() -> None:
    scale_weights = fit_scale(made(3000, TRUE))
    for name in ("host", "quantized"):
        ratio = scale_weights[name] / scale_weights["kernels"]
        assert ratio == pytest.approx(TRUE[name] / TRUE["kernels"], rel=0.5), name
    assert scale_weights["host"] / scale_weights["kernels"] > 2.0 * PRIOR["host"] / PRIOR["kernels"]


def test_without_runs_that_tell_the_prior_stays() -> None:
    errors = 0.03 * RANDOM.standard_normal(50)
    observed = Observed.of([Parts()] * 50, errors, np.ones(50), ["a"] * 50)
    scale_weights = fit_scale(observed)
    for name in ("host", "skew", "quantized", "pressed"):
        assert scale_weights[name] == pytest.approx(PRIOR[name])


def test_the_weights_are_those_of_parts() -> None:
    assert set(SLOWER) < set(PRIOR)
    assert all(Parts().value(name) in (0.0, 1.0) for name in PRIOR)
