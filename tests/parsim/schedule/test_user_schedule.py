"""A schedule of the user's own: what is refused, where it says so; all see the same one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import DeadlockError, ScheduleError
from parsim.plan import Plan
from parsim.schedule import Schedule, build_schedule, parse_user_schedule, schedule_of
from parsim.schedule.lowering import lower

ZERO_BUBBLE = (
    "0F0,0F1,0I0,0F2,0I1,0W0,0F3,0I2,0W1,0I3,0W2,0W3\n"
    "1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2,1F3,1I3,1W3\n"
)
PLAN = Plan(pp=2, num_microbatches=4, schedule="a.csv", actions=ZERO_BUBBLE)


def refusal(old: str, new: str) -> str:
    assert ZERO_BUBBLE.count(old) == 1
    with pytest.raises(ScheduleError) as caught:
        parse_user_schedule("a.csv", ZERO_BUBBLE.replace(old, new))
    return str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("1F2", "1X2", "a.csv:2, cell 7: '1X2' is not an action; expected <stage><kind><microb"),
        ("1F2", "1F", "a.csv:2, cell 7: action '1F' lacks its microbatch; write it behind"),
        ("1F2", "1F1", "a.csv:2, cell 7: rank 1 runs 1F1 twice; each microbatch of a stage has"),
        ("0F1,0I0,0F2", "0F1,,0F1,0I0,0F2", "a.csv:1, cell 4: rank 0 runs 0F1 twice"),
        ("1F2,1I2", "1I2,1F2", "a.csv:2, cell 7: rank 1 runs 1I2 before 1F2"),
        ("1F2,", ",", "a.csv:2, cell 8: rank 1 runs 1I2 without 1F2"),
        ("1I2,1W2", "1B2,1W2", "a.csv:2, cell 9: rank 1 runs 1W2 beside another backward of stage"),
        ("0W3", "", "a.csv:1: stage 0 on rank 0 lacks 0W3; every stage needs F and B (or I and W)"),
        ("0F0,", "0F0,1F0,", "a.csv: stage 1 is on ranks 0 and 1; a stage belongs to one rank"),
        ("1F0,", "3F0,", "a.csv: stage 2 is on no rank, but stage 3 is; stages must be numbered"),
        ("1F3", "1F900000000", "a.csv: microbatch 4 is in no action, but microbatch 900000000 is"),
        ("0F0", "0F0\0", "a.csv"),
    ],
)
def test_what_is_wrong_is_told_with_file_line_and_cell(old: str, new: str, expected: str) -> None:
    assert refusal(old, new).startswith(expected)


def test_a_deadlock_names_its_cycle_and_where_each_rank_stands() -> None:
    stuck = "0F0,0B0,0F1,0B1\n,1F1,1F0,1B0,1B1\n"
    with pytest.raises(DeadlockError) as caught:
        parse_user_schedule("a.csv", stuck)
    assert caught.value.cycle == (
        "rank 0 waits at 0B0 for rank 1 to run 1B0",
        "rank 1 waits at 1F1 for rank 0 to run 0F1",
    )
    assert str(caught.value).startswith("a.csv: deadlock with buffered sends: rank 0 waits at 0B0")
    assert str(caught.value).endswith(" (0B0: line 1, cell 2; 1F1: line 2, cell 2)")


def test_messages_in_another_order_are_told_with_both_cells() -> None:
    text = lower(build_schedule("gpipe", pp=2, num_microbatches=2)).to_csv()
    swapped = text.replace("0F0,0SEND_F0,0F1,0SEND_F1", "0F0,0F1,0SEND_F1,0SEND_F0")
    with pytest.raises(ScheduleError, match="matched by order") as caught:
        parse_user_schedule("a.csv", swapped)
    assert str(caught.value).endswith(" (0SEND_F1: line 1, cell 3; 1RECV_F0: line 2, cell 1)")


def test_misplaced_communication_is_told_with_its_cell() -> None:
    text = lower(build_schedule("gpipe", pp=2, num_microbatches=2), reduce_grad=True).to_csv()
    early = text.replace("0B0,0RECV_B1,0B1,0REDUCE_GRAD", "0B0,0REDUCE_GRAD,0RECV_B1,0B1")
    with pytest.raises(ScheduleError) as caught:
        parse_user_schedule("a.csv", early)
    assert str(caught.value).startswith("a.csv:1, cell 7: rank 0 runs 0REDUCE_GRAD before the last")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pp": 4}, "a.csv: has 2 rows, one for each rank, but pp=4"),
        ({"v": 2}, "a.csv: has 2 stages, but pp=2 x v=2 = 4"),
        ({"num_microbatches": 8}, "a.csv: has 4 microbatches, but num_microbatches=8"),
    ],
)
def test_a_plan_of_other_sizes(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        schedule_of(replace(PLAN, **change))
    assert str(caught.value) == message


def test_all_plans_that_share_the_text_share_one_schedule() -> None:
    other = replace(PLAN, microbatch_size=4, zero_stage=1, dp_shard=2)
    assert schedule_of(PLAN) is schedule_of(other)
    assert len({PLAN, replace(PLAN), other}) == 2


def test_stages_may_be_anywhere() -> None:
    text = "1F0,1B0\n0F0,2F0,3F0,3B0,2B0,0B0\n"
    schedule = schedule_of(Plan(pp=2, v=2, num_microbatches=1, schedule="a.csv", actions=text))
    assert schedule.stage_rank == (1, 0, 1, 1)


@pytest.mark.parametrize("name", ["naive", "gpipe", "1f1b", "interleaved_1f1b"])
def test_the_plan_of_a_name_has_that_schedule(name: str) -> None:
    v = 2 if name == "interleaved_1f1b" else 1
    plan = Plan(pp=2, num_microbatches=4, schedule=name, v=v)
    assert schedule_of(plan) == build_schedule(name, pp=2, num_microbatches=4, v=v)
    alone = schedule_of(replace(plan, pp=1))
    assert alone == build_schedule("1f1b", pp=1, num_microbatches=4)


@given(seed=st.integers(0, 10**6))
def test_the_communication_is_run_but_not_simulated(
    random_schedule: Callable[[int], Schedule], seed: int
) -> None:
    bare = random_schedule(seed)
    if bare.pp == 1 or bare.num_stages % bare.pp:
        return
    text = lower(bare, unshard=True, reduce_grad=True).to_csv()
    sizes: dict[str, Any] = {
        "pp": bare.pp,
        "v": bare.num_stages // bare.pp,
        "num_microbatches": bare.num_microbatches,
    }
    plan = replace(PLAN, actions=text, **sizes)
    assert schedule_of(plan).to_csv() == text
    assert build_schedule("a.csv", actions=text, **sizes).ranks == bare.ranks
    assert bare.compute_only() is bare
