"""The objective of the constants' fit: robust least squares with log-normal priors.

Minimises sum_i w_i huber(log(predicted_i / measured_i)) + PRIOR_WEIGHT sum_c (move_c / spread_c)^2
over the constants' moves, the logarithms of value over textbook value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.least_squares import Descent, Loss, least_loss

HUBER = 0.05
"""Errors beyond 5 % count linearly: a few bad rows must not steer the constants."""
PRIOR_WEIGHT = 0.001
"""A constant one spread off its textbook value costs as much as 0.1 % more error on one source.

At 0.003 the constants stay nearer to the textbook and the worst source has 0.6 points more error;
at 0.0003 rates pass what kernels and links were measured to reach."""
DESCENT = Descent(rounds=12, share=1e-4, harder=10.0)
NUDGE = 0.02
"""Step of the numeric derivative, of a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is fitted: log errors of the rows under given moves, and each row's weight.

    `nudged` gives the log errors when one constant alone moves on from where `error` was
    evaluated; it may evaluate only the rows that this constant reaches.
    """

    errors: Callable[[Array], Array]
    nudged: Callable[[Array, int, Array], Array]
    weight: Array
    spread: Array


def solve(problem: Problem) -> tuple[Array, float]:
    """The moves with the smallest objective found from the textbook values, and the objective."""

    def slopes(move: Array, error: Array) -> Array:
        nudged = move + NUDGE * np.eye(len(move))
        columns = [problem.nudged(ahead, which, error) for which, ahead in enumerate(nudged)]
        return (np.stack(columns, axis=1) - error[:, None]) / NUDGE

    return least_loss(problem.errors, slopes, loss_of(problem.weight, problem.spread), DESCENT)


def loss_of(weight: Array, spread: Array) -> Loss:
    """The objective for rows of these weights (R,) and constants of these spreads (K,)."""
    return Loss(weight=weight / HUBER, prior=PRIOR_WEIGHT / spread**2, corner=HUBER)
