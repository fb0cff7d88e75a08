"""Which shapes a calibration measures: those that take most out of the step's uncertainty a second.

A plan's kernels have weights w_i (share of the step's kernel time) and errors with a covariance K
(executor/calibration/belief.py), so the step's relative variance is w K w; measuring shape j takes

    (w K)_j^2 / (K_jj + noise^2)

out of it: w_j^2 K_jj of its own and what it tells of its neighbours. Always the shape that takes
most per second of measuring comes next; towards the end of the time, spread shapes of the kinds
that have few, without which the constants cannot be fitted. Same inputs, same choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from executor.calibration.belief import (
    NOISE,
    Prior,
    Shape,
    after,
    covariance,
    prior,
)
from executor.calibration.spread import Candidate, lacking
from executor.calibration.workloads import (
    Case,
)

Array = NDArray[np.float64]

BY_WEIGHT = 0.8
"""Of the time, by weight alone; then come the spread shapes that are still lacking."""
NEGLIGIBLE = 1e-3
"""Share of the variance left that a shape must remove to come before the spread."""
ENOUGH = 20
"""Where the time is for fewer shapes of median cost, all that matter come before the spread."""
QUANTILE = 1.2816
"""Standard deviations to either side that hold 80 % of a normal error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Candidates, what share of each plan's step they are (P, N), and which are measured.

    `priors` say how uncertain each kind is before. `held` are candidates whose times an earlier
    calibration has. `measured` are indices in the order of measuring, most needed first.
    """

    candidates: tuple[Candidate, ...]
    weights: Array
    measured: tuple[int, ...]
    priors: Mapping[str, Prior]
    held: tuple[int, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        """What to run, in this order."""
        found = (self.candidates[i].case for i in self.measured)
        return tuple(case for case in found if case is not None)

    @property
    def cost(self) -> float:
        """Seconds that measuring is expected to take."""
        return sum(self.candidates[i].cost for i in self.measured)

    @property
    def before(self) -> float:
        """Half width of the 80 % interval of a step's kernel time, as a share of it: unmeasured.

        But for what is held.
        """
        return interval(self.weights, after(covariance(self._shapes, self.priors), self.held))

    @property
    def expected(self) -> float:
        """The same once all chosen shapes are measured."""
        return float(np.sqrt((self.expected_of_plans**2).mean()))

    @property
    def expected_of_plans(self) -> Array:
        """That of each plan, (P,)."""
        known = (*self.held, *self.measured)
        return intervals(self.weights, after(covariance(self._shapes, self.priors), known))

    def achieved(self, scatter: Mapping[str, tuple[float, int]], done: Sequence[Shape],
                 drift: float) -> float:  # fmt: skip
        """The same as it came out.

        Args:
            scatter: per measured kind, how much its log times scatter around the fitted constants,
                and how many there were.
            done: the shapes that were measured.
            drift: standard deviation of the reference product: what all kernels share.
        """
        known = {**self.priors, **{
            kind: self.priors[kind].measured(max(sd, NOISE), count)
            for kind, (sd, count) in scatter.items()
        }}  # fmt: skip
        new = set(done)
        rows = [i for i, one in enumerate(self.candidates) if one.shape in new or i in self.held]
        noise = float(np.hypot(NOISE, drift))
        left = after(covariance(self._shapes, known), rows, noise)
        return float(np.hypot(interval(self.weights, left), QUANTILE * drift))

    def counts(self, done: Sequence[Shape] | None = None) -> dict[str, dict[str, int]]:
        """Per kind how many shapes there are, and how many are (or were) measured."""
        shapes = [one.shape for one in self.candidates]
        chosen = [shapes[i] for i in self.measured] if done is None else done
        measured, of = Counter(kind for kind, _ in chosen), Counter(kind for kind, _ in shapes)
        return {kind: {"of": of[kind], "measured": measured[kind]} for kind in of}

    @property
    def _shapes(self) -> list[Shape]:
        return [one.shape for one in self.candidates]


def intervals(weights: Array, belief: Array) -> Array:
    """Half width of the 80 % interval of each plan, (P,)."""
    variances = np.einsum("pi,ij,pj->p", weights, belief, weights, optimize=True)
    return np.asarray(QUANTILE * np.sqrt(np.maximum(variances, 0.0)))


def interval(weights: Array, belief: Array) -> float:
    """The same as one number, root mean square over plans."""
    return float(np.sqrt((intervals(weights, belief) ** 2).mean()))


def choose(
    candidates: Sequence[Candidate], weights: Array, seconds: float, *, cpu: bool,
    held: tuple[int, ...] = (),
) -> Choice:  # fmt: skip
    """Choose within a time.

    Args:
        candidates: all shapes.
        weights: (P, N), each plan's shares of its step.
        seconds: what measuring may cost.
        cpu: whether the device is a CPU, of which the catalog knows little.
        held: candidates that an earlier calibration measured: known, and not measured again.
    """
    costs = np.array([one.cost if one.case is not None else np.inf for one in candidates])
    shapes = [one.shape for one in candidates]
    priors = {kind: prior(kind, cpu=cpu) for kind, _ in shapes}
    belief = after(covariance(shapes, priors), held)
    costs[list(held)] = np.inf
    few = seconds < ENOUGH * float(np.median(costs[np.isfinite(costs)]))
    time = seconds if few else BY_WEIGHT * seconds
    found = _greedy(belief, weights, costs, time, least=NEGLIGIBLE)
    left = seconds - float(costs[found].sum())
    found += _within(lacking(candidates, weights.max(axis=0), (*held, *found)), costs, left)
    left = seconds - float(costs[found].sum())
    costs[found] = np.inf
    found += _greedy(after(belief, found), weights, costs, left)
    return Choice(
        candidates=tuple(candidates),
        weights=weights,
        measured=tuple(found),
        priors=priors,
        held=held,
    )


def _greedy(
    belief: Array, weights: Array, costs: Array, seconds: float, least: float = 0.0
) -> list[int]:
    """Indices by variance removed per second, until no shape that helps fits the time.

    `least` is the share of the variance left that the next one must remove.
    """
    found: list[int] = []
    told: list[Array] = []  # of the belief now is: belief - sum of outer(u, u) over these
    costs, spreads, seen = costs.copy(), belief.diagonal().copy(), weights @ belief
    variance = float((seen * weights).sum(axis=1).mean())
    while (costs <= seconds).any():
        removed = (seen**2).mean(axis=0) / (spreads + NOISE**2)
        rate = np.where(costs <= seconds, removed / costs, 0.0)
        at = int(np.argmax(rate))
        if removed[at] <= least * variance or rate[at] <= 0.0:
            break
        found.append(at)
        seconds -= float(costs[at])
        costs[at] = np.inf
        column = belief[:, at] - sum((one * one[at] for one in told), np.zeros(len(costs)))
        told.append(column / np.sqrt(column[at] + NOISE**2))
        shares = weights @ told[-1]
        seen = seen - np.outer(shares, told[-1])
        spreads = np.maximum(spreads - told[-1] ** 2, 0.0)
        variance -= float((shares**2).mean())
    return found


def _within(listed: Sequence[int], costs: Array, seconds: float) -> list[int]:
    """The beginning of a list that fits a time."""
    spent = np.cumsum(costs[list(listed)])
    return list(listed[: int(np.searchsorted(spent, seconds, side="right"))])
