"""Long schedules repeat the middle of short ones: the same rows, for the price of few."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from parsim.schedule import build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.orders import long_rows
from parsim.schedule.orders.long_rows import repeating, stretched
from parsim.schedule.orders.weight_fill import Rows

NAMES = {"zb_h1": 1, "zb_h2": 1, "zb_1p": 1, "zb_2p": 1, "zb_auto": 1}
NAMES |= {"zb_v": 2, "v_half": 2, "v_min": 2}


def rows_of(name: str, pp: int, made: list[int]) -> Callable[[int], Rows]:
    def build(count: int) -> Rows:
        made.append(count)
        return build_schedule(name, pp=pp, num_microbatches=count, v=NAMES[name]).ranks

    return build


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("pp", "m"), [(2, 41), (3, 60), (4, 77), (6, 111)])
def test_a_stretched_schedule_is_the_one_built_whole(
    name: str, pp: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build_schedule(name, pp=pp, num_microbatches=m, v=NAMES[name]).ranks
    monkeypatch.setattr(long_rows, "LONG", 0)
    monkeypatch.setattr(long_rows, "SHORT", 8)
    made: list[int] = []
    assert stretched(rows_of(name, pp, made), pp, m) == whole
    assert max(made) < m


@pytest.mark.parametrize("name", ["v_half", "v_min", "zb_1p", "zb_2p", "zb_auto"])
@pytest.mark.parametrize(("pp", "many"), [(2, 9), (3, 13), (4, 9), (5, 11), (8, 9), (12, 9)])
def test_many_micro_batches_for_each_rank_repeat_the_middle_of_few(
    name: str, pp: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = many * pp + 1
    module = sys.modules["parsim.schedule.families." + ("v_shape" if name[0] == "v" else "zb_auto")]
    made: list[int] = []

    def noted(build: Callable[[int], Rows], short: int, m: int) -> Rows:
        def counted(count: int) -> Rows:
            made.append(count)
            return build(count)

        return repeating(counted, short, m)

    monkeypatch.setattr(module, "repeating", noted)
    rows = build_schedule(name, pp=pp, num_microbatches=m, v=NAMES[name]).ranks
    assert len(made) == 1
    assert made[0] < m
    monkeypatch.setattr(module, "repeating", lambda build, short, m: build(m))
    assert rows == build_schedule(name, pp=pp, num_microbatches=m, v=NAMES[name]).ranks


@pytest.mark.parametrize("name", ["zb_auto", "v_half"])
def test_ten_thousand_micro_batches_are_built_from_few(name: str) -> None:
    made: list[int] = []
    rows = stretched(rows_of(name, 2, made), 2, 10_000)
    assert max(made) <= 2 * long_rows.SHORT + 2 * max(long_rows.PERIODS)
    assert {len(row) for row in rows} == {3 * NAMES[name] * 10_000}
    assert {row[-1].microbatch for row in rows} == {9_999}


@pytest.mark.parametrize("times", [(1.0, 1.53, 0.7, 0.2, 1.0), (1.0, 0.8, 0.65, 0.05, 0.5)])
@pytest.mark.parametrize("name", ["zb_1p", "zb_auto", "zb_v"])
def test_a_long_schedule_of_uneven_times_is_complete(
    name: str, times: tuple[float, float, float, float, float]
) -> None:
    check_schedule(build_schedule(name, pp=4, num_microbatches=1100, v=NAMES[name], times=times))


def test_what_does_not_repeat_is_built_whole() -> None:
    """A row whose first action knows the number of micro-batches."""

    def build(count: int) -> Rows:
        made.append(count)
        (row,) = build_schedule("zb_h1", pp=1, num_microbatches=count).ranks
        return ((row[-1], *row[:-1]),)

    made: list[int] = []
    assert len(stretched(build, 1, 1500)[0]) == 4500
    assert made[-1] == 1500
