"""Fit a family's constants to the rows that it may use, and judge them on all its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array
from parsim.fitting.constants.address import Address, entry_of, reaches, with_values
from parsim.fitting.constants.batches import Batch, batches
from parsim.fitting.constants.effects import NOTHING, Effect
from parsim.fitting.constants.families import Constant, Family
from parsim.fitting.constants.solve import Problem, solve
from parsim.fitting.constants.source_cases import SourceCases
from parsim.validation.step.case import Case

Values = Mapping[Address, float]

DIGITS = 3
"""Significant digits of a fitted value, as the catalog holds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What a fit found: values of the family's constants (rounded) and its objective."""

    family: Family
    values: dict[Address, float]
    objective: float


class Rows:
    """Measured rows whose log errors are wanted under many sets of constants."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.batches: list[Batch] = batches(cases)
        self.measured: Array = np.array([case.run.step_time or np.nan for case in cases])

    def errors(self, values: Values, effect: Effect = NOTHING) -> Array:
        """log(predicted / measured) of every row."""
        out = np.empty(len(self.measured))
        for batch in self.batches:
            self._fill(out, batch, values, effect)
        return out

    def after(self, values: Values, moved: Address, before: Array) -> Array:
        """Errors where only `moved` changed since `before`: rows beyond its reach are kept."""
        out = before.copy()
        for batch in self.batches:
            if reaches(moved, entry_of(batch.job, moved.kind), values):
                self._fill(out, batch, values)
        return out

    def _fill(self, out: Array, batch: Batch, values: Values, effect: Effect = NOTHING) -> None:
        predicted = batch.step_times(with_values(batch.job, values), effect)
        out[batch.indices] = np.log(predicted / self.measured[batch.indices])


def fit(family: Family, sources: Sequence[SourceCases], known: Values | None = None) -> Fitted:
    """Fit to the used rows of the sources, each source counting the same.

    Args:
        family: the constants.
        sources: their rows; those without used rows count nothing.
        known: constants of families fitted before; others have the catalog's values.
    """
    groups = [source.fitted for source in sources if source.fitted]
    rows = Rows([case for group in groups for case in group])
    constants, fixed = family.constants, dict(known or {})

    def moved(moves: Array) -> dict[Address, float]:
        pairs = zip(constants, moves, strict=True)
        return {constant.address: _value(constant, move) for constant, move in pairs}

    def values(moves: Array) -> dict[Address, float]:
        return fixed | moved(moves)

    problem = Problem(
        errors=lambda move: rows.errors(values(move)),
        nudged=lambda move, which, error: rows.after(values(move), constants[which].address, error),
        weight=np.concatenate([np.full(len(group), 1.0 / len(group)) for group in groups]),
        spread=np.array([constant.spread for constant in constants]),
    )
    moves, objective = solve(problem)
    fitted = {address: rounded(value) for address, value in moved(moves).items()}
    return Fitted(family=family, values=fitted, objective=objective)


def _value(constant: Constant, move: float) -> float:
    return min(constant.textbook * float(np.exp(move)), constant.most)


def rounded(value: float) -> float:
    """A value as it is written."""
    return float(f"{value:.{DIGITS}g}")


def textbook(family: Family) -> dict[Address, float]:
    """The values before any fit."""
    return {constant.address: constant.textbook for constant in family.constants}
