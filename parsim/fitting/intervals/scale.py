"""The scale of prediction errors: weights of the parts of a step that are hard to predict.

Errors are taken as asymmetric Laplace: density exp(-|e| / s) / (s_low + s_high), s of the error's
side and times a factor of the run's device and software, so that weights explain the runs of a
group by what differs between them. Each weight is drawn towards a prior, which is what stays where
no run tells: sources without host-bound runs do not say what the host scatters by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Index
from parsim.sim.confidence.known_errors import SLOWER
from parsim.sim.confidence.step_parts import Parts

PRIOR = {
    "kernels": 0.03,
    "host": 0.15,
    "exchange": 0.12,
    "skew": 0.20,
    "quantized": 0.03,
    "pressed": 0.05,
}
"""Log error by a whole step of each part: kernels and 8-bit recipes 3 % (step-level rms of fitted
stacks; releases of one recipe differ by 4 to 5 %), hosts scatter by 20 %, half of them slower,
collectives in a node 0.12 to 0.15 (`collective_spread`), rows near the memory limit 5
to 20 %
slow in some of the cases. Fixed before the fit."""
STRENGTH = 1.0
"""Log likelihood that a weight a factor e from its prior costs: a standard deviation of 0.7."""
STEPS = (0.4, 0.2, 0.1, 0.05)
"""Steps of the logarithms of the weights, coarse to fine."""
LEAN = 2.0
"""A group's factor leans on 1 with so many runs' weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Errors of runs as columns: their parts, log errors, weights, and which group each is of."""

    parts: Mapping[str, Array]
    errors: Array
    weights: Array
    group: Index

    @classmethod
    def of(
        cls, parts: Sequence[Parts], errors: Array, weights: Array, groups: Sequence[str]
    ) -> Observed:
        """From one entry per run."""
        columns = {name: np.array([run.value(name) for run in parts]) for name in PRIOR}
        _, group = np.unique(groups, return_inverse=True)
        return cls(parts=columns, errors=errors, weights=weights, group=group)

    def scale(self, weights: Mapping[str, float], *, slower: bool) -> Array:
        """The scale of every run's lower or upper half."""
        squares = [
            (weight * self.parts[name]) ** 2
            for name, weight in weights.items()
            if slower or name not in SLOWER
        ]
        return np.asarray(np.sqrt(np.sum(squares, axis=0)))

    def loss(self, weights: Mapping[str, float]) -> float:
        """Mean negative log likelihood, each group with its own factor."""
        low, high = (self.scale(weights, slower=side) for side in (False, True))
        ratio = np.abs(self.errors) / np.where(self.errors > 0.0, high, low)
        total = np.bincount(self.group, self.weights * ratio) + LEAN
        factor = (total / (np.bincount(self.group, self.weights) + LEAN))[self.group]
        each = np.log(0.5 * (low + high) * factor) + ratio / factor
        return float(np.average(each, weights=self.weights))


def fit_scale(observed: Observed) -> dict[str, float]:
    """Weights with the least loss, by a search along their logarithms, coarse to fine."""
    weights = dict(PRIOR)
    best = _penalised(observed, weights)
    for step in STEPS:
        while True:
            tried = [
                {**weights, name: weights[name] * factor}
                for name in PRIOR
                for factor in (np.exp(step), np.exp(-step))
            ]
            losses = [_penalised(observed, trial) for trial in tried]
            if min(losses) >= best - 1e-9:
                break
            best, weights = min(losses), tried[int(np.argmin(losses))]
    return {name: float(value) for name, value in weights.items()}


def _penalised(observed: Observed, weights: Mapping[str, float]) -> float:
    away = sum(float(np.log(weights[name] / PRIOR[name])) ** 2 for name in PRIOR)
    return observed.loss(weights) + STRENGTH * away / float(observed.weights.sum())
