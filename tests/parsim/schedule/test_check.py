from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import DeadlockError, ScheduleError
from parsim.schedule import Action, Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.lowering import lower

TWO = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
LOWERED = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
)


def message(text: str, old: str = "", new: str = "", **changes: Any) -> str:
    assert not old or text.count(old) == 1
    broken = replace(Schedule.from_csv(text, name="x"), **changes)
    rows = broken.to_csv().replace(old, new).splitlines() if old else broken.to_csv().splitlines()
    ranks = tuple(tuple(Action.parse(c) for c in row.split(",") if c) for row in rows)
    with pytest.raises(ScheduleError) as caught:
        check_schedule(replace(broken, ranks=ranks, cells=()))
    return str(caught.value)


@given(seed=st.integers(0, 10**6))
def test_random_legal_schedules_pass(random_schedule: Callable[[int], Schedule], seed: int) -> None:
    check_schedule(random_schedule(seed))


def test_the_examples_pass_unbroken() -> None:
    check_schedule(Schedule.from_csv(TWO))
    check_schedule(Schedule.from_csv(LOWERED))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("0F0,0F1", "0F0", "x: rank 0 runs 0B1 without 0F1"),
        ("0B0,0B1", "0B0", "x: stage 0 on rank 0 lacks 0B1; every stage needs F and B (or I and"),
        ("1B0,1F1", "1I0,1F1", "x: stage 1 on rank 1 lacks 1W0; every stage needs F and B"),
        ("0F0,0F1", "0F0,0F1,0F0", "x: rank 0 runs 0F0 twice; each microbatch of a stage has it"),
        ("1B0,1F1", "1I0,1B0,1F1", "x: rank 1 runs 1B0 beside another backward of stage 1 micro"),
        ("1B0,1F1", "1B0,1W0,1F1", "x: rank 1 runs 1W0 beside another backward of stage 1 micro"),
        ("1F0,1B0", "1B0,1F0", "x: rank 1 runs 1B0 before 1F0"),
        ("1B0,1F1", "1W0,1I0,1F1", "x: rank 1 runs 1W0 before 1I0"),
        ("1B0,1F1", "1W0,1F1", "x: rank 1 runs 1W0 without 1I0"),
        ("0F0,0F1", "0F0,1F0,0F1", "x: rank 0 runs 1F0, but stage 1 is on rank 1"),
        ("0F0,0F1", "0F0,7F0,0F1", "x: rank 0 runs 7F0, but there is no such stage; allowed: 0..1"),
        ("0F0,0F1", "0F0,0F9", "x: rank 0 runs 0F9, but num_microbatches=2; allowed microbatches"),
        ("0B0,0B1", "0REDUCE_GRAD,0B0,0B1", "x: rank 0 runs 0REDUCE_GRAD before the last backward"),
        ("0B0,0B1", "0B0,0B1,0REDUCE_GRAD", "x: stage 1 lacks REDUCE_GRAD, which stage 0 has; all"),
        ("0B1", "0B1,0REDUCE_GRAD,0REDUCE_GRAD", "x: rank 0 runs 0REDUCE_GRAD twice; a stage has"),
    ],
)
def test_incomplete_misplaced_or_out_of_order(old: str, new: str, expected: str) -> None:
    assert message(TWO, old, new).startswith(expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("1RECV_F0,1F0", "1F0,1RECV_F0", "x: rank 1 runs 1F0 before 1RECV_F0"),
        ("1RECV_F0,", "", "x: rank 1 runs 1F0 without 1RECV_F0"),
        ("0F0,0SEND_F0", "0SEND_F0,0F0", "x: rank 0 runs 0SEND_F0 before 0F0"),
        ("1B0,1SEND_B0", "1SEND_B0,1B0", "x: rank 1 runs 1SEND_B0 before 1B0"),
        ("1B0,1SEND_B0", "1B0", "x: stage 1 on rank 1 lacks 1SEND_B0; every stage needs"),
        ("0RECV_B0,0B0", "0RECV_B0,0RECV_B0,0B0", "x: rank 0 runs 0RECV_B0 twice; each microbatch"),
        ("0B0,", "0B0,0SEND_B0,", "x: stage 0 on rank 0 runs 0SEND_B0, but no other rank is at"),
        ("0F0,", "0UNSHARD,0F0,0RESHARD,", "x: rank 0 runs 0F1 while stage 0 is sharded; put its"),
        ("0F0,", "0UNSHARD,0UNSHARD,0F0,", "x: rank 0 runs 0UNSHARD while stage 0 is unsharded"),
        ("0F0,", "0RESHARD,0F0,", "x: rank 0 runs 0RESHARD while stage 0 is not unsharded"),
    ],
)
def test_broken_communication(old: str, new: str, expected: str) -> None:
    assert message(LOWERED, old, new).startswith(expected)


def test_messages_in_another_order_than_they_are_received() -> None:
    text = LOWERED.replace("0F0,0SEND_F0,0F1,0SEND_F1", "0F0,0F1,0SEND_F1,0SEND_F0")
    assert message(text) == (
        "x: message 0 from rank 0 to rank 1 is sent as 0SEND_F1 and received as 1RECV_F0; "
        "messages between two ranks are matched by order, so both must be in the same order"
    )


def test_numbers_that_make_no_schedule() -> None:
    assert message(TWO, num_microbatches=0).startswith("num_microbatches=0 is too small")
    assert message(TWO, stage_rank=(0, 0)) == "x: rank 1 holds no stage"
    with pytest.raises(ScheduleError, match="sends='eager' is unknown; allowed: buffered, rendez"):
        check_schedule(Schedule.from_csv(TWO), sends="eager")  # type: ignore[arg-type]


def test_deadlock_of_compute_actions_names_the_cycle() -> None:
    with pytest.raises(DeadlockError) as caught:
        check_schedule(Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", name="x"))
    assert caught.value.cycle == (
        "rank 0 waits at 0B0 for rank 1 to run 1B0",
        "rank 1 waits at 1F1 for rank 0 to run 0F1",
    )
    assert str(caught.value) == (
        "x: deadlock with buffered sends: " + "; ".join(caught.value.cycle) + " "
        "(0B0: line 1, cell 2; 1F1: line 2, cell 1)"
    )


def test_the_cycle_leaves_out_who_only_waits_for_it_and_starts_at_its_lowest_rank() -> None:
    text = "2F0,2B0,2F1,2B1\n0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n"
    with pytest.raises(DeadlockError) as caught:
        check_schedule(Schedule.from_csv(text))
    assert caught.value.cycle == (
        "rank 1 waits at 0B0 for rank 2 to run 1B0",
        "rank 2 waits at 1F1 for rank 1 to run 0F1",
    )


def test_a_rank_that_waits_for_itself() -> None:
    with pytest.raises(DeadlockError) as caught:
        check_schedule(Schedule.from_csv("1F0,0F0,1B0,0B0\n2F0,2B0\n"))
    assert caught.value.cycle == ("rank 0 waits at 1F0 for rank 0 to run 0F0",)


def test_a_split_backward_is_named_by_its_input_gradient() -> None:
    with pytest.raises(DeadlockError) as caught:
        check_schedule(Schedule.from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1I0,1I1,1W0,1W1\n"))
    assert caught.value.cycle[0] == "rank 0 waits at 0B0 for rank 1 to run 1I0"


def test_deadlock_of_a_lowered_schedule_with_buffered_sends() -> None:
    text = LOWERED.replace("0F1,0SEND_F1,0RECV_B0,0B0", "0RECV_B0,0F1,0SEND_F1,0B0")
    text = text.replace("1F0,1B0,1SEND_B0,1RECV_F1", "1F0,1RECV_F1,1B0,1SEND_B0")
    with pytest.raises(DeadlockError) as caught:
        check_schedule(Schedule.from_csv(text))
    assert caught.value.cycle == (
        "rank 0 waits at 0RECV_B0 for rank 1 to run 1SEND_B0",
        "rank 1 waits at 1RECV_F1 for rank 0 to run 0SEND_F1",
    )


def test_blocking_sends_deadlock_where_buffered_ones_do_not() -> None:
    # Each rank sends before it receives: fine if a send returns at once.
    check_schedule(Schedule.from_csv(LOWERED))
    with pytest.raises(DeadlockError) as caught:
        check_schedule(Schedule.from_csv(LOWERED, name="x"), sends="rendezvous")
    assert caught.value.cycle == (
        "rank 0 waits at 0SEND_F1 for rank 1 to run 1RECV_F1",
        "rank 1 waits at 1SEND_B0 for rank 0 to run 0RECV_B0",
    )
    assert "use buffered sends, or lower() so that" in str(caught.value)


@pytest.mark.parametrize(("name", "v"), [("1f1b", 1), ("interleaved_1f1b", 2)])
def test_rendezvous_deadlocks_1f1b_and_interleaved(name: str, v: int) -> None:
    schedule = build_schedule(name, pp=4, num_microbatches=8, v=v)
    check_schedule(schedule, sends="buffered")
    with pytest.raises(DeadlockError) as caught:
        check_schedule(schedule, sends="rendezvous")
    assert len(caught.value.cycle) >= 2
    assert all(" waits at " in line for line in caught.value.cycle)


def test_the_cycle_of_1f1b() -> None:
    with pytest.raises(DeadlockError) as caught:
        check_schedule(build_schedule("1f1b", pp=4, num_microbatches=8), sends="rendezvous")
    assert caught.value.cycle == (
        "rank 2 waits at 2SEND_F1 for rank 3 to run 3RECV_F1",
        "rank 3 waits at 3SEND_B0 for rank 2 to run 2RECV_B0",
    )


@pytest.mark.parametrize("name", ["naive", "gpipe"])
def test_rendezvous_does_not_deadlock_gpipe(name: str) -> None:
    check_schedule(build_schedule(name, pp=4, num_microbatches=8), sends="rendezvous")


@pytest.mark.parametrize("v", [2, 4])
def test_lower_makes_rendezvous_safe(v: int) -> None:
    schedule = build_schedule("interleaved_1f1b", pp=4, num_microbatches=8, v=v)
    check_schedule(lower(schedule), sends="rendezvous")
