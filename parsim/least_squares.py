"""The constants that miss measurements least: damped Gauss-Newton (Levenberg-Marquardt).

Every fit of the project goes through here: errors are logarithms of predicted over measured, moves
those of constants over where they start, and what differs between fits is said by two records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Num

Errors = Callable[[Array], Array]
"""Errors (R,) of the rows when the constants have made these moves (K,)."""
Slopes = Callable[[Array, Array], Array]
"""Derivatives (R, K) of the errors in the moves, from the moves and the errors there."""

FAILURES = 8
"""So many steps in a row that do not count are the last: the damping is then tens of thousands of
times as strong as where it began to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a fit makes small: sum_i weight_i h(error_i) + sum_k prior_k move_k^2.

    h(e) is e^2 / 2 up to |e| = `corner` and goes on as a straight line (Huber 1964), so that a few
    bad rows do not steer the constants; without a corner it is a square everywhere. `weight` (R,)
    or one for all rows, `prior` (K,).
    """

    weight: Num
    prior: Array
    corner: float = np.inf

    def __call__(self, errors: Array, moves: Array) -> float:
        """The loss of the errors at the moves."""
        size = np.abs(errors)
        near = np.minimum(size, self.corner)
        return float(np.sum(self.weight * near * (size - near / 2)) + np.sum(self.prior * moves**2))

    def step(self, slopes: Array, errors: Array, moves: Array, damping: float = 0.0) -> Array:
        """Where the loss would be least if errors were straight lines, from the moves on.

        Solves the normal equations, with rows beyond the corner weighted down, and with `damping`
        times the diagonal added to it.
        """
        robust = self.weight * np.minimum(1.0, self.corner / np.maximum(np.abs(errors), 1e-12))
        pull = slopes.T @ (robust * errors) + 2.0 * self.prior * moves
        normal = slopes.T @ (slopes * np.reshape(robust, (-1, 1))) + np.diag(2.0 * self.prior)
        return np.asarray(np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -pull))


@dataclass(frozen=True, slots=True, kw_only=True)
class Descent:
    """How a fit goes on: at most so many `rounds`.

    A step counts that takes away more than the share `needed` of the loss. One that takes away less
    than `enough`, or less than the share `share`, is the last. `damping` is multiplied by `harder`
    after a step that does not count, and divided by `calmer` after one that does. Moves stay within
    `limits` (low and high, each (K,)), and a step moves no constant by more than `stride`.
    """

    rounds: int
    needed: float = 0.0
    enough: float = 0.0
    share: float = 0.0
    damping: float = 1e-3
    harder: float = 4.0
    calmer: float = 3.0
    limits: tuple[Num, Num] = (-np.inf, np.inf)
    stride: float = np.inf


def least_loss(errors: Errors, slopes: Slopes, loss: Loss, descent: Descent) -> tuple[Array, float]:
    """The moves of least loss that are found from no move at all, and their loss."""
    moves, damping, failures = np.zeros(len(loss.prior)), descent.damping, 0
    now = errors(moves)
    least, at = loss(now, moves), slopes(moves, now)
    for _ in range(descent.rounds):
        step = np.clip(loss.step(at, now, moves, damping), -descent.stride, descent.stride)
        ahead = np.clip(moves + step, *descent.limits)
        then = errors(ahead)
        tried = loss(then, ahead)
        if not tried < least * (1.0 - descent.needed):
            damping, failures = damping * descent.harder, failures + 1
            if failures == FAILURES:
                break
            continue
        last = least - tried < max(descent.enough, descent.share * least)
        moves, now, least = ahead, then, tried
        damping, failures = damping / descent.calmer, 0
        if last:
            break
        at = slopes(moves, now)
    return moves, least


def numeric_slopes(errors: Errors, width: float) -> Slopes:
    """Derivatives by moving one constant after the other by `width`."""

    def slopes(moves: Array, now: Array) -> Array:
        nudged = moves + width * np.eye(len(moves))
        return np.stack([(errors(ahead) - now) / width for ahead in nudged], axis=1)

    return slopes
