"""How constants move when some rows are left out of their fit: one Gauss-Newton step from it.

Fitting a family again for each of a hundred groups of rows would take hours. At the fitted
constants the objective's slope is zero with all rows; without some it is not, and one step of
Newton's method with the other rows' curvature leads to where their fit is, to first order. A
constant that only the left-out rows identify goes back to its textbook value. The rows themselves
are then predicted again by the moved constants, so that only the step is an approximation.

Source: the infinitesimal jackknife (Giordano et al. 2019, arXiv:1806.00550), of the objective in
`solve.py`.
Leaves out: that the formulas have been chosen by people who saw the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from parsim.arrays import Array, Flags
from parsim.fitting.constants.address import Address
from parsim.fitting.constants.families import Family, families
from parsim.fitting.constants.fit import Rows, Values
from parsim.fitting.constants.solve import NUDGE, loss_of
from parsim.fitting.constants.source_cases import load
from parsim.validation.step.case import Case

RowKey = tuple[str, float | None]
"""A measured run: its row and its step time."""


def row_key(case: Case) -> RowKey:
    """Which measured run a case is."""
    return case.run.row_id, case.run.step_time


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFit:
    """A family at the catalog's constants: what its rows say about them.

    `errors` (R,) are log(predicted / measured) of the fit's rows, `slopes` (R, K) their derivatives
    in the logarithms of the K constants, `source` (R,) which source a row is of; `moves` (K,) are
    the logarithms of the constants over their textbook values.
    """

    family: Family
    keys: tuple[RowKey, ...]
    source: Array
    errors: Array
    slopes: Array
    moves: Array

    @classmethod
    def of(cls, family: Family) -> FamilyFit:
        """Predict the rows that the fit uses, and again with each constant nudged."""
        groups = [source.fitted for source in load(family)]
        cases = [case for group in groups for case in group]
        rows, now = Rows(cases), _catalog(family)
        errors = rows.errors({})
        nudged = [
            rows.after({address: value * float(np.exp(NUDGE))}, address, errors)
            for address, value in now.items()
        ]
        textbook = np.array([constant.textbook for constant in family.constants])
        return cls(
            family=family,
            keys=tuple(row_key(case) for case in cases),
            source=np.repeat(np.arange(len(groups)), [len(group) for group in groups]),
            errors=errors,
            slopes=np.stack([(error - errors) / NUDGE for error in nudged], axis=1),
            moves=np.log(np.array(list(now.values())) / textbook),
        )

    def without(self, left: Collection[RowKey]) -> dict[Address, float]:
        """The constants that the other rows ask for; nothing where no row of the fit is left out.

        The step of all rows together is taken off: rounded constants are not quite at the optimum.
        """
        kept = np.array([key not in left for key in self.keys], dtype=bool)
        if kept.all():
            return {}
        moved = self._step(kept) - self._step(np.ones_like(kept))
        pairs = zip(self.family.constants, _catalog(self.family).values(), moved, strict=True)
        return {
            constant.address: min(value * float(np.exp(move)), constant.most)
            for constant, value, move in pairs
        }

    def _step(self, kept: Flags) -> Array:
        """The undamped step of `solve` for some rows, each source counting the same."""
        counts = np.bincount(self.source[kept], minlength=int(self.source.max()) + 1)
        weight = kept / np.maximum(counts[self.source], 1)
        spread = np.array([constant.spread for constant in self.family.constants])
        return loss_of(weight, spread).step(self.slopes, self.errors, self.moves)


def _catalog(family: Family) -> dict[Address, float]:
    """The family's constants as the catalog has them."""
    return {constant.address: constant.address.catalog_value() for constant in family.constants}


class LeaveOut:
    """The constants of all families, as they would be without some runs."""

    def __init__(self, fits: Sequence[FamilyFit] | None = None) -> None:
        """Take all families' fits, or these."""
        self.fits = [FamilyFit.of(family) for family in families()] if fits is None else fits

    def values(self, cases: Sequence[Case]) -> Values:
        """The constants that move where no fit has seen these runs."""
        left = {row_key(case) for case in cases}
        return {address: value for fit in self.fits for address, value in fit.without(left).items()}
