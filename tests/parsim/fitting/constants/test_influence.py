"""Constants without some rows: one step from the fit is where a fit of the other rows ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.fitting.constants.address import Address
from parsim.fitting.constants.families import Constant, Family
from parsim.fitting.constants.influence import FamilyFit
from parsim.fitting.constants.solve import Problem, solve

NAMES = ("device a100-sxm-80gb memory_efficiency", "stack megatron-2021 launch_cost")
CONSTANTS = tuple(
    Constant(address=address, textbook=address.catalog_value(), spread=0.3, why="test")
    for address in map(Address.parse, NAMES)
)
FAMILY = Family(name="test", about="made errors", constants=CONSTANTS, sources=())
SLOPES = np.array([[1.0, 0.2], [0.8, 0.1], [0.3, 0.9], [0.1, 1.0], [0.5, 0.5], [0.9, 0.4]])
AT_ZERO = np.array([0.01, -0.02, 0.03, -0.01, 0.02, 0.015])
SOURCE = np.array([0, 0, 0, 1, 1, 1])


def fitted(rows: list[int]) -> Array:
    """The moves from the textbook that a whole fit to some rows of linear errors finds."""
    counts = np.bincount(SOURCE[rows])
    problem = Problem(
        errors=lambda move: AT_ZERO[rows] + SLOPES[rows] @ move,
        nudged=lambda move, which, error: AT_ZERO[rows] + SLOPES[rows] @ move,
        weight=1.0 / counts[SOURCE[rows]],
        spread=np.array([constant.spread for constant in CONSTANTS]),
    )
    return solve(problem)[0]


def at_the_fit() -> FamilyFit:
    moves = fitted([0, 1, 2, 3, 4, 5])
    return FamilyFit(
        family=FAMILY,
        keys=tuple((str(row), 1.0) for row in range(6)),
        source=SOURCE,
        errors=AT_ZERO + SLOPES @ moves,
        slopes=SLOPES,
        moves=moves,
    )


@pytest.mark.parametrize("left", [[0], [2, 3], [0, 1, 4]])
def test_one_step_is_a_fit_without_the_rows(left: list[int]) -> None:
    kept = [row for row in range(6) if row not in left]
    moved = at_the_fit().without({(str(row), 1.0) for row in left})
    now = np.array([constant.address.catalog_value() for constant in CONSTANTS])
    step = np.log(np.array([moved[constant.address] for constant in CONSTANTS]) / now)
    assert step == pytest.approx(fitted(kept) - fitted([0, 1, 2, 3, 4, 5]), abs=2e-3)
    assert np.abs(step).max() > 5e-3


def test_rows_that_no_fit_uses_move_nothing() -> None:
    assert at_the_fit().without({("7", 1.0)}) == {}


def test_a_constant_that_no_other_row_knows_returns_to_its_textbook_value() -> None:
    alone = replace(at_the_fit(), slopes=np.where(np.arange(6)[:, None] < 1, SLOPES, [[0.0, 1.0]]))
    moved = alone.without({("0", 1.0)})
    shift = np.log(moved[CONSTANTS[0].address] / CONSTANTS[0].address.catalog_value())
    kept = alone._step(np.arange(6) > 0)
    assert kept[0] == pytest.approx(-alone.moves[0])
    assert shift == pytest.approx(-alone.moves[0] - alone._step(np.arange(6) >= 0)[0])


def test_no_constant_passes_its_bound() -> None:
    bounded = replace(CONSTANTS[1], most=CONSTANTS[1].address.catalog_value())
    family = replace(FAMILY, constants=(CONSTANTS[0], bounded))
    for row in range(6):
        moved = replace(at_the_fit(), family=family).without({(str(row), 1.0)})
        assert moved[bounded.address] <= bounded.most
