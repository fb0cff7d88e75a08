"""A fit finds the constants that made the times, and says nothing where no row knows better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.fitting.constants.address import Address, with_values
from parsim.fitting.constants.families import Constant, Family, families, read_family
from parsim.fitting.constants.fit import Fitted, Rows, fit, rounded, textbook
from parsim.fitting.constants.leave_out import leave_out
from parsim.fitting.constants.source_cases import SourceCases
from parsim.sim import simulate
from parsim.validation.fitted_rows import Source
from parsim.validation.step.case import Case, build_case
from parsim.validation.step.row_reader import parse_row
from parsim.validation.tables import shipped_tables
from parsim.validation.validate import read_table
from tests.parsim.validation.conftest import shipped

HBM = Address.parse("device a100-sxm-80gb memory_efficiency")
MOVED = [Address.parse(f"stack megatron-2021 {name}") for name in ("traffic", "scores_traffic")]
LAUNCH = Address.parse("stack megatron-2021 launch_cost")
PYTHON = Address.parse("stack megatron-2021 microbatch_overhead")
TRUE = {HBM: 0.7, PYTHON: 4e-3, LAUNCH: 60e-6}
START = {HBM: 0.6, PYTHON: 3e-3, LAUNCH: 40e-6}


def family(**most: float) -> Family:
    constants = tuple(
        Constant(address=address, textbook=value, spread=0.5, why="test", **most)
        for address, value in START.items()
    )
    return Family(name="test", about="made times", constants=constants, sources=())


def made(table: str, some: slice, name: str) -> SourceCases:
    """Rows of a table whose measured times are what the model says with the true constants."""
    cases = [build_case(parse_row(row)) for row in read_table(shipped(table))[some]]
    timed = [_timed(case) for case in cases]
    source = Source(name=name, table=table, every=1)
    return SourceCases(source=source, cases=tuple(timed), used=(True,) * len(timed))


def _timed(case: Case) -> Case:
    seconds = simulate(with_values(case.job, TRUE), case.plan).step_time
    return replace(case, run=replace(case.run, step_time=seconds))


@pytest.fixture(scope="module")
def sources() -> list[SourceCases]:
    return [
        made("vtrain_single", slice(0, 720, 90), "small"),
        made("vtrain_multi", slice(0, 41, 12), "large"),
    ]


@pytest.fixture(scope="module")
def result(sources: list[SourceCases]) -> Fitted:
    return fit(family(), sources)


def test_a_fit_finds_the_constants_that_made_the_times(
    sources: list[SourceCases], result: Fitted
) -> None:
    for address, value in TRUE.items():
        assert result.values[address] == pytest.approx(value, rel=0.03)
    before, after = (
        np.abs(Rows(sources[0].cases).errors(values)).mean()
        for values in (textbook(family()), result.values)
    )
    assert after < 0.1 * before
    assert after < 0.005


@pytest.mark.slow
def test_known_constants_are_kept(sources: list[SourceCases]) -> None:
    """With a wrong traffic that is kept, memory efficiency makes up for it."""
    known = {address: 1.2 * address.catalog_value() for address in MOVED}
    assert fit(family(), sources, known).values[HBM] > 1.1 * TRUE[HBM]


def test_a_constant_stays_within_its_bound(sources: list[SourceCases]) -> None:
    assert fit(family(most=0.65), sources[:1]).values[HBM] == 0.65


def test_a_constant_that_no_row_knows_stays_at_its_textbook_value(
    sources: list[SourceCases],
) -> None:
    elsewhere = Address.parse("device b200-sxm memory_efficiency")
    lone = Constant(address=elsewhere, textbook=0.6, spread=0.1, why="test")
    whole = replace(family(), constants=(*family().constants, lone))
    assert fit(whole, sources[:1]).values[elsewhere] == 0.6


def test_only_the_rows_that_a_moved_constant_reaches_are_predicted_again(
    sources: list[SourceCases],
) -> None:
    rows = Rows(sources[0].cases)
    before = rows.errors(START)
    moved = {**START, LAUNCH: 50e-6}
    assert rows.after(moved, LAUNCH, before) == pytest.approx(rows.errors(moved))
    other = Address.parse("device b200-sxm memory_efficiency")
    assert (rows.after({**START, other: 0.1}, other, before) == before).all()


@pytest.mark.slow
def test_a_source_left_out_is_predicted_by_the_others(
    sources: list[SourceCases], result: Fitted
) -> None:
    judged = leave_out(family(), sources, result, {})
    assert [without.source for without in judged] == ["small", "large"]
    small, large = (
        [s.mean_abs_error or 1.0 for s in (without.fitted, without.left_out, without.textbook)]
        for without in judged
    )
    assert max(small[0], large[0]) < 0.005
    assert large[0] < large[1] < 0.5 * large[2]
    # large steps do not know the launch cost, which small ones are made of
    assert small[1] > 0.5 * small[2] > 0.05
    assert leave_out(family(), sources[:1], result, {}) == []


def test_values_have_three_digits() -> None:
    assert rounded(0.0123456) == 0.0123
    assert rounded(1234.5) == 1230.0


# --------------------------------------------------------------------------- families


def test_families_are_complete_and_name_what_there_is() -> None:
    read = families()
    assert [entry.name for entry in read] == ["a100", "deepspeed", "h100", "b200", "blackwell"]
    tables = {path.stem for path in shipped_tables()}
    for entry in read:
        assert {source.table for source in entry.sources} <= tables
        for constant in entry.constants:
            assert constant.textbook > 0
            assert 0 < constant.spread < 1
            assert constant.textbook <= constant.most
            assert constant.why


def test_a_family_is_read_from_its_mapping() -> None:
    entry = {
        "about": "text",
        "constants": {str(HBM): {"textbook": 0.8, "spread": 0.1, "why": "data sheet"}},
        "sources": {"s": {"table": "t", "every": 2, "of": ["tp"], "rows": 4}},
    }
    result = read_family("own", entry)
    assert result.constants[0].address == HBM
    assert result.sources[0].rule() == "one cell of (tp) in 2, of its rows one in 4"
