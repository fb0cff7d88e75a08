"""Which shapes a calibration measures: those that take most out of the step's uncertainty a second.

A plan's kernels have weights w_i (share of the step's kernel time) and errors with a covariance K
(executor/calibration/belief.py), so the step's relative variance is w K w; measuring shape j takes

    (w K)_j^2 / (K_jj + noise^2)

out of it: w_j^2 K_jj of its own and what it tells of its neighbours. First a few spread shapes of
every kind, without which the constants cannot be fitted; then the shape that takes most per second
of measuring, again and again until the time is used. Same inputs, same choice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from executor.calibration.belief import (
    LINK_KINDS,
    NOISE,
    Prior,
    Shape,
    after,
    covariance,
    prior,
    told,
)
from executor.calibration.workloads import (
    BACKWARD,
    COPY,
    FORWARD,
    GEMM,
    LAUNCH,
    OPTIMIZER,
    Case,
)

Array = NDArray[np.float64]

LEAST = {GEMM: 20, LAUNCH: 1, FORWARD: 4, BACKWARD: 4, COPY: 3, OPTIMIZER: 3,
         **dict.fromkeys(LINK_KINDS, 4)}  # fmt: skip
"""Spread shapes of a kind that the fit of the constants wants: 20 products, 6 to 9 points of
attention, 4 sizes of a collective, 1, 16 and 256 MiB of what is memory-bound (`LEAST_OTHER`)."""
LEAST_OTHER = 3
A_ROUND = {GEMM: 4}
"""Of how many shapes of a kind a round of the spread has: the time may end after any of them."""
LATE = 1000
"""Rounds that kinds wait which no plan has: they serve other scenarios."""
SPREAD_SHARE = 0.5
"""Of the time, for the spread shapes; the rest goes by weight."""
DEAR = 3.0
"""A spread shape costs at most so many times the median of its kind: any will do."""
QUANTILE = 1.2816
"""Standard deviations to either side that hold 80 % of a normal error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A shape of a plan or of the spread; `case` None where it cannot be run by itself.

    `cost` is what measuring takes, seconds.
    """

    shape: Shape
    case: Case | None
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Candidates, what share of each plan's step they are (P, N), and which are measured.

    `priors` say how uncertain each kind is before.
    `measured` are indices in the order of measuring, most needed first.
    """

    candidates: tuple[Candidate, ...]
    weights: Array
    measured: tuple[int, ...]
    priors: Mapping[str, Prior]

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
        """Half width of the 80 % interval of a step's kernel time, as a share of it: unmeasured."""
        return interval(self.weights, covariance(self._shapes, self.priors))

    @property
    def expected(self) -> float:
        """The same once all chosen shapes are measured."""
        return interval(self.weights, after(covariance(self._shapes, self.priors), self.measured))

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
        held = set(done)
        rows = [i for i, one in enumerate(self.candidates) if one.shape in held]
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


def interval(weights: Array, belief: Array) -> float:
    """Half width of the 80 % interval, root mean square over plans."""
    variances = np.einsum("pi,ij,pj->p", weights, belief, weights, optimize=True)
    return float(QUANTILE * np.sqrt(max(float(variances.mean()), 0.0)))


def choose(candidates: Sequence[Candidate], weights: Array, seconds: float, *, cpu: bool) -> Choice:
    """Choose within a time.

    Args:
        candidates: all shapes.
        weights: (P, N), each plan's shares of its step.
        seconds: what measuring may cost.
        cpu: whether the device is a CPU, of which the catalog knows little.
    """
    costs = np.array([one.cost if one.case is not None else np.inf for one in candidates])
    shapes = [one.shape for one in candidates]
    priors = {kind: prior(kind, cpu=cpu) for kind, _ in shapes}
    spread_out = _within(_spread(candidates, weights.max(axis=0)), costs, SPREAD_SHARE * seconds)
    belief = after(covariance(shapes, priors), spread_out)
    free = np.isfinite(costs)
    free[spread_out] = False
    left = seconds - float(costs[spread_out].sum())
    rest = _greedy(belief, weights, np.where(free, costs, np.inf), left)
    return Choice(
        candidates=tuple(candidates), weights=weights, measured=(*spread_out, *rest), priors=priors
    )


def _greedy(belief: Array, weights: Array, costs: Array, seconds: float) -> list[int]:
    """Indices by variance removed per second, until no shape that helps fits the time."""
    found: list[int] = []
    costs = costs.copy()
    while (costs <= seconds).any():
        removed = ((weights @ belief) ** 2).mean(axis=0) / (belief.diagonal() + NOISE**2)
        rate = np.where(costs <= seconds, removed / costs, 0.0)
        at = int(np.argmax(rate))
        if rate[at] <= 0.0:
            break
        found.append(at)
        seconds -= float(costs[at])
        costs[at] = np.inf
        belief = told(belief, at)
    return found


def _within(listed: Sequence[int], costs: Array, seconds: float) -> list[int]:
    """The beginning of a list that fits a time, and at least its first."""
    spent = np.cumsum(costs[list(listed)])
    return list(listed[: max(int(np.searchsorted(spent, seconds, side="right")), 1)])


def _spread(candidates: Sequence[Candidate], weights: Array) -> list[int]:
    """Spread shapes of all kinds in rounds: the first of every kind, then the second ..."""
    kinds: dict[str, list[int]] = {}
    for i, one in enumerate(candidates):
        if one.case is not None and np.isfinite(one.cost):
            kinds.setdefault(one.shape[0], []).append(i)
    placed: list[tuple[int, bool, int]] = []
    for kind, rows in kinds.items():
        late = LATE if kind not in LEAST and not weights[rows].any() else 0
        chosen = _farthest(candidates, rows, weights, LEAST.get(kind, LEAST_OTHER))
        every = A_ROUND.get(kind, 1)
        placed += [(late + n // every, kind not in LEAST, i) for n, i in enumerate(chosen)]
    return [i for _, _, i in sorted(placed, key=lambda one: one[:2])]


def _farthest(
    candidates: Sequence[Candidate], rows: Sequence[int], weights: Array, count: int
) -> list[int]:
    """The heaviest shape that is not too dear, then always the one farthest from those chosen."""
    limit = DEAR * float(np.median([candidates[i].cost for i in rows]))
    rows = [i for i in rows if candidates[i].cost <= limit]
    at = np.log2(np.array([candidates[i].shape[1] for i in rows], dtype=np.float64))
    chosen = [int(np.argmax(weights[rows]))]
    distance = np.abs(at - at[chosen[0]]).sum(axis=1)
    while len(chosen) < count and distance.max() > 0.0:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.abs(at - at[chosen[-1]]).sum(axis=1))
    return [rows[i] for i in chosen]
