"""Fit a family's constants to the rows that it may use, and judge them on all its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parsim.validation.batches import Batch, batches
from parsim.validation.build import Case
from parsim.validation.effects import NOTHING, Effect
from parsim.validation.fitting.constants import Address, entry_of, reaches, with_values
from parsim.validation.fitting.families import Constant, Family
from parsim.validation.fitting.rows import SourceCases
from parsim.validation.fitting.solve import Problem, solve

Array = NDArray[np.float64]
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
        """The same where only `moved` changed since `before`: rows beyond its reach are kept."""
        out = before.copy()
        for batch in self.batches:
            if reaches(moved, entry_of(batch.job, moved.kind), values):
                self._fill(out, batch, values)
        return out

    def _fill(self, out: Array, batch: Batch, values: Values, effect: Effect = NOTHING) -> None:
        predicted = batch.step_times(with_values(batch.job, values), effect)
        out[batch.places] = np.log(predicted / self.measured[batch.places])


def fit(family: Family, sources: Sequence[SourceCases], known: Values | None = None) -> Fitted:
    """Fit to the used rows of the sources, each source counting the same.

    Args:
        family: the constants.
        sources: their rows; those without used rows count nothing.
        known: constants of families fitted before; others have the catalog's values.
    """
    groups = [one.fitted for one in sources if one.fitted]
    rows = Rows([case for group in groups for case in group])
    constants, fixed = family.constants, dict(known or {})

    def values(move: Array) -> dict[Address, float]:
        return fixed | {one.address: _value(one, m) for one, m in zip(constants, move, strict=True)}

    problem = Problem(
        errors=lambda move: rows.errors(values(move)),
        nudged=lambda move, which, error: rows.after(values(move), constants[which].address, error),
        weight=np.concatenate([np.full(len(group), 1.0 / len(group)) for group in groups]),
        spread=np.array([one.spread for one in constants]),
    )
    move, objective = solve(problem)
    found = {one.address: rounded(_value(one, m)) for one, m in zip(constants, move, strict=True)}
    return Fitted(family=family, values=found, objective=objective)


def _value(constant: Constant, move: float) -> float:
    return min(constant.textbook * float(np.exp(move)), constant.most)


def rounded(value: float) -> float:
    """A value as it is written."""
    return float(f"{value:.{DIGITS}g}")


def textbook(family: Family) -> dict[Address, float]:
    """The values before any fit."""
    return {one.address: one.textbook for one in family.constants}
