"""Which shapes a calibration measures: those that take most out of the step's uncertainty a second.

A plan's kernels have weights w_i (share of the step's kernel time) and errors with a covariance K
(executor/calibration/choice/belief.py), so the step's relative variance is w K w; measuring
shape j takes

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

from executor.calibration.cases.workloads import TimedCase
from executor.calibration.choice.belief import NOISE, Prior, Shape, after, covariance, prior
from executor.calibration.choice.spread import ShapeCandidate, lacking
from parsim.arrays import Array

BY_WEIGHT = 0.8
"""Share of the time that goes by weight alone; then come spread shapes still lacking."""
NEGLIGIBLE = 1e-3
"""Share of the variance left that a shape must remove to come before the spread."""
ENOUGH = 20
"""Where the time is for fewer shapes of median cost, all that matter come before the spread."""
QUANTILE = 1.2816
"""Standard deviations to either side that hold 80 % of a normal error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Candidates, what share of each plan's step they are (P, N), and which are measured.

    `priors` say how uncertain each kind is before. `known` are candidates whose times an earlier
    calibration has. `measured` are indices in the order of measuring, most needed first.
    """

    candidates: tuple[ShapeCandidate, ...]
    weights: Array
    measured: tuple[int, ...]
    priors: Mapping[str, Prior]
    known: tuple[int, ...] = ()

    @property
    def cases(self) -> tuple[TimedCase, ...]:
        """What to run, in this order."""
        cases = (self.candidates[i].case for i in self.measured)
        return tuple(case for case in cases if case is not None)

    @property
    def cost(self) -> float:
        """Seconds that measuring is expected to take."""
        return sum(self.candidates[i].cost for i in self.measured)

    @property
    def before(self) -> float:
        """Half width of the 80 % interval of a step's kernel time, as a share of it: unmeasured.

        But for what is known.
        """
        return interval(self.weights, after(covariance(self._shapes, self.priors), self.known))

    @property
    def expected(self) -> float:
        """Half width expected once all chosen shapes are measured."""
        return float(np.sqrt((self.expected_of_plans**2).mean()))

    @property
    def expected_of_plans(self) -> Array:
        """Expected half width of each plan, (P,)."""
        known = (*self.known, *self.measured)
        return intervals(self.weights, after(covariance(self._shapes, self.priors), known))

    def achieved(
        self, scatter: Mapping[str, tuple[float, int]], done: Sequence[Shape], clock: float
    ) -> float:
        """Half width as it came out, once the shapes `done` were measured.

        `scatter` has for each measured kind how much its log times scatter around the fitted
        constants, and how many there were. `clock` is the standard deviation of the reference
        product: what all kernels share.
        """
        priors = dict(self.priors)
        for kind, (sd, count) in scatter.items():
            priors[kind] = priors[kind].measured(max(sd, NOISE), count)
        new = set(done)
        shapes = enumerate(self._shapes)
        rows = [i for i, shape in shapes if shape in new or i in self.known]
        noise = float(np.hypot(NOISE, clock))
        left = after(covariance(self._shapes, priors), rows, noise)
        return float(np.hypot(interval(self.weights, left), QUANTILE * clock))

    def counts(self, done: Sequence[Shape] | None = None) -> dict[str, dict[str, int]]:
        """Per kind how many shapes there are, and how many are (or were) measured."""
        shapes = self._shapes
        timed = [shapes[i] for i in self.measured] if done is None else done
        measured, of = Counter(kind for kind, _ in timed), Counter(kind for kind, _ in shapes)
        return {kind: {"of": of[kind], "measured": measured[kind]} for kind in of}

    @property
    def _shapes(self) -> list[Shape]:
        return [candidate.shape for candidate in self.candidates]


def intervals(weights: Array, belief: Array) -> Array:
    """Half width of the 80 % interval of each plan, (P,)."""
    variances = np.einsum("pi,ij,pj->p", weights, belief, weights, optimize=True)
    return np.asarray(QUANTILE * np.sqrt(np.maximum(variances, 0.0)))


def interval(weights: Array, belief: Array) -> float:
    """Half width over all plans: the root mean square."""
    return float(np.sqrt((intervals(weights, belief) ** 2).mean()))


def choose(
    candidates: Sequence[ShapeCandidate],
    weights: Array,
    seconds: float,
    *,
    cpu: bool,
    known: tuple[int, ...] = (),
) -> Choice:
    """Choose within a time; `weights` (P, N) are each plan's shares of its step.

    Of a CPU the catalog knows little. What is `known` from an earlier calibration is not measured
    again.
    """
    costs = np.array([x.cost if x.case is not None else np.inf for x in candidates])
    shapes = [candidate.shape for candidate in candidates]
    priors = {kind: prior(kind, cpu=cpu) for kind, _ in shapes}
    belief = after(covariance(shapes, priors), known)
    costs[list(known)] = np.inf
    few = seconds < ENOUGH * float(np.median(costs[np.isfinite(costs)]))
    time = seconds if few else BY_WEIGHT * seconds
    rows = _greedy(belief, weights, costs, time, least=NEGLIGIBLE)
    left = seconds - float(costs[rows].sum())
    rows += _within(lacking(candidates, weights.max(axis=0), (*known, *rows)), costs, left)
    left = seconds - float(costs[rows].sum())
    costs[rows] = np.inf
    rows += _greedy(after(belief, rows), weights, costs, left)
    listed, measured = tuple(candidates), tuple(rows)
    return Choice(candidates=listed, weights=weights, measured=measured, priors=priors, known=known)


def _greedy(
    belief: Array, weights: Array, costs: Array, seconds: float, least: float = 0.0
) -> list[int]:
    """Indices by variance removed per second, until no shape that helps fits the time.

    `least` is the share of the variance left that the next one must remove.
    """
    rows: list[int] = []
    removals: list[Array] = []  # of the belief now is: belief - sum of outer(u, u) over these
    costs, spreads, seen = costs.copy(), belief.diagonal().copy(), weights @ belief
    variance = float((seen * weights).sum(axis=1).mean())
    while (costs <= seconds).any():
        removed = (seen**2).mean(axis=0) / (spreads + NOISE**2)
        rate = np.where(costs <= seconds, removed / costs, 0.0)
        at = int(np.argmax(rate))
        if removed[at] <= least * variance or rate[at] <= 0.0:
            break
        rows.append(at)
        seconds -= float(costs[at])
        costs[at] = np.inf
        column = belief[:, at] - sum(
            (removal * removal[at] for removal in removals), np.zeros(len(costs))
        )
        removals.append(column / np.sqrt(column[at] + NOISE**2))
        shares = weights @ removals[-1]
        seen = seen - np.outer(shares, removals[-1])
        spreads = np.maximum(spreads - removals[-1] ** 2, 0.0)
        variance -= float((shares**2).mean())
    return rows


def _within(listed: Sequence[int], costs: Array, seconds: float) -> list[int]:
    """The beginning of a list that fits a time."""
    spent = np.cumsum(costs[list(listed)])
    return list(listed[: int(np.searchsorted(spent, seconds, side="right"))])
