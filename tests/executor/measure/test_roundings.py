"""Errors of fp32 that are drawn: as large as the arithmetic says, in whatever order sums are."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from executor.measure.roundings import UNIT, Roundings  # noqa: E402

CPU = torch.device("cpu")
TERMS = 4096


def drawn(terms: Any, count: int = 40) -> float:
    """The root mean square of the drawn errors of a sum."""
    exact = float(torch.sum(terms))
    errors = []
    for seed in range(count):
        with Roundings(seed, CPU):
            errors.append(float(torch.sum(terms)) - exact)
    return math.sqrt(sum(error**2 for error in errors) / count)


@pytest.fixture
def cancelling() -> Any:
    """Terms whose sum is far below their size."""
    terms = torch.randn(TERMS, generator=torch.Generator().manual_seed(12345), dtype=torch.float64)
    return (terms - terms.mean()).float().double()


def test_a_sum_errs_by_the_root_of_its_terms(cancelling: Any) -> None:
    by_hand = UNIT * math.sqrt(TERMS * float((cancelling**2).sum()) / 3.0)
    assert drawn(cancelling) == pytest.approx(by_hand, rel=0.3)
    assert by_hand >= UNIT * float(cancelling.abs().sum()) / math.sqrt(3.0)


def test_no_order_of_a_sum_errs_more(cancelling: Any) -> None:
    exact, allowed = float(cancelling.sum()), 3.0 * drawn(cancelling)
    for order in (cancelling, cancelling.flip(0), cancelling.sort()[0]):
        for lanes in (1, 8, 16, 64):
            parts = order.float().view(-1, lanes).cumsum(0)[-1]  # lanes of a vector, in order
            assert abs(float(parts.cumsum(0)[-1]) - exact) <= allowed


def test_a_result_errs_by_one_rounding() -> None:
    ones = torch.ones(1000, dtype=torch.float64)
    with Roundings(3, CPU):
        products = ones * ones
    errors = (products - 1.0).abs()
    assert 0.9 * UNIT < float(errors.max()) <= UNIT
    assert torch.equal(ones, torch.ones_like(ones))


def test_views_and_whole_numbers_stay() -> None:
    values = torch.arange(6, dtype=torch.float64)
    with Roundings(3, CPU):
        seen, counted = values.view(2, 3).t(), torch.arange(6).sum()
    assert torch.equal(seen, torch.arange(6, dtype=torch.float64).view(2, 3).t())
    assert int(counted) == 15


def test_what_an_operation_writes_into_errs_too() -> None:
    values, other = torch.ones(4, 4, dtype=torch.float64), torch.zeros(4, 4, dtype=torch.float64)
    with Roundings(3, CPU):
        values.add_(1.0)
        torch.mm(values, values, out=other)
    assert 0.0 < float((values - 2.0).abs().max()) <= 2.0 * UNIT
    assert 0.0 < float((other - 16.0).abs().max()) <= 16.0 * 10 * UNIT


def test_what_is_stored_in_16_bit_errs_by_one_rounding_of_it() -> None:
    ones, wide = torch.ones(1000, dtype=torch.bfloat16), torch.ones(1000)
    with Roundings(3, CPU, torch.bfloat16):
        products, others = ones * ones, wide * wide
    errors = (products.float() - 1.0).abs()
    assert {0.0, 2.0**-8} == set(errors.tolist())  # the neighbour below; that above is farther
    assert torch.equal(others, wide)


def test_the_same_seed_draws_the_same() -> None:
    values = torch.ones(8, dtype=torch.float64)
    results = []
    for seed in (1, 1, 2):
        with Roundings(seed, CPU):
            results.append(values * 3.0)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
