"""Robust least squares with log-normal priors, by damped Gauss-Newton.

Minimises sum_i w_i huber(log(predicted_i / measured_i)) + PRIOR_WEIGHT sum_c (move_c / spread_c)^2
over the constants' moves, the logarithms of value over textbook value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array

HUBER = 0.05
"""Errors beyond 5 % count linearly: a few bad rows must not steer the constants."""
PRIOR_WEIGHT = 0.001
"""A constant one spread off its textbook value costs as much as 0.1 % more error on one source.

At 0.003 the constants stay nearer to the textbook and the worst source has 0.6 points more error;
at 0.0003 rates pass what kernels and links were measured to reach."""
ROUNDS = 12
ENOUGH = 1e-4
"""A round that improves the objective by less than this share is the last."""
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
    move = np.zeros(len(problem.spread))
    error = problem.errors(move)
    best, damping, slopes = objective(problem, error, move), 1e-3, None
    for _ in range(ROUNDS):
        if slopes is None:
            slopes = _slopes(problem, move, error)
        step = newton_step(
            slopes,
            error,
            move,
            weight=problem.weight,
            spread=problem.spread,
            damping=damping,
        )
        tried = problem.errors(move + step)
        loss = objective(problem, tried, move + step)
        if loss >= best:
            damping *= 10.0
            continue
        gained = 1.0 - loss / best
        move, error, best, damping, slopes = move + step, tried, loss, damping / 3.0, None
        if gained < ENOUGH:
            break
    return move, best


def objective(problem: Problem, error: Array, move: Array) -> float:
    """Weighted mean Huber loss and the priors' cost."""
    size = np.abs(error)
    huber = np.where(size < HUBER, error**2 / (2 * HUBER), size - HUBER / 2)
    prior = PRIOR_WEIGHT * np.sum((move / problem.spread) ** 2)
    return float(np.sum(problem.weight * huber) + prior)


def _slopes(problem: Problem, move: Array, error: Array) -> Array:
    """Numeric derivative of every row's log error in every move, (rows, constants)."""
    columns = []
    for which in range(len(move)):
        shifted = move.copy()
        shifted[which] += NUDGE
        columns.append((problem.nudged(shifted, which, error) - error) / NUDGE)
    return np.stack(columns, axis=1)


def newton_step(
    slopes: Array,
    error: Array,
    move: Array,
    *,
    weight: Array,
    spread: Array,
    damping: float = 0.0,
) -> Array:
    """Solve the damped normal equations; rows beyond HUBER are weighted down.

    Args:
        slopes: derivatives of the rows' log errors in the moves, (rows, constants).
        error: log errors of the rows at the present moves.
        move: the present moves.
        weight: of each row.
        spread: of each constant's logarithm.
        damping: share of the diagonal that is added to it.
    """
    size = np.maximum(np.abs(error), 1e-9)
    robust = weight * np.minimum(1.0, HUBER / size) / HUBER
    prior = 2.0 * PRIOR_WEIGHT / spread**2
    normal = slopes.T @ (robust[:, None] * slopes) + np.diag(prior)
    slope = slopes.T @ (robust * error) + prior * move
    return np.asarray(np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -slope))
