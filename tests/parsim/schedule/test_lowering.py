from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import DeadlockError, ScheduleError
from parsim.schedule import Kind, Schedule, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.lowering import lower


def text(schedule: Schedule) -> str:
    """One line per rank, actions separated by blanks."""
    return schedule.to_csv().replace(",", " ").replace("\r\n", "\n")


def test_two_stages_by_hand() -> None:
    lowered = lower(build_schedule("1f1b", pp=2, num_microbatches=2), reduce_grad=True)
    assert text(lowered) == (
        "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0REDUCE_GRAD\n"
        "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 1REDUCE_GRAD\n"
    )


def test_stages_on_one_rank_exchange_no_messages() -> None:
    lowered = lower(Schedule.from_csv("0F0,1F0,1B0,0B0\n2F0,2B0\n"))
    assert text(lowered) == "0F0 1F0 1SEND_F0 1RECV_B0 1B0 0B0\n2RECV_F0 2F0 2B0 2SEND_B0\n"


def test_unshard_by_hand() -> None:
    lowered = lower(build_schedule("gpipe", pp=1, num_microbatches=1), unshard=True)
    assert text(lowered) == "0UNSHARD 0F0 0B0 0RESHARD\n"


def test_at_most_three_stages_are_unsharded() -> None:
    schedule = build_schedule("interleaved_1f1b", pp=2, num_microbatches=8, v=5)
    for row in lower(schedule, unshard=True).ranks:
        level = peak = 0
        for action in row:
            level += (action.kind == Kind.UNSHARD) - (action.kind == Kind.RESHARD)
            peak = max(peak, level)
        assert (level, peak) == (0, 3)


@given(seed=st.integers(0, 10**6), unshard=st.booleans(), reduce_grad=st.booleans())
def test_lowering_keeps_the_compute_order_and_never_deadlocks(
    random_schedule: Callable[[int], Schedule], seed: int, unshard: bool, reduce_grad: bool
) -> None:
    schedule = random_schedule(seed)
    lowered = lower(schedule, unshard=unshard, reduce_grad=reduce_grad)
    kept = tuple(tuple(a for a in row if a.kind.is_compute) for row in lowered.ranks)
    assert kept == schedule.ranks
    check_schedule(lowered)
    check_schedule(lowered, sends="rendezvous")


def test_refuses_a_lowered_schedule() -> None:
    lowered = lower(build_schedule("1f1b", pp=2, num_microbatches=2))
    with pytest.raises(ScheduleError) as caught:
        lower(lowered)
    assert str(caught.value) == (
        "1f1b: lower() takes compute actions only (F, B, I, W), but found 0SEND_F0"
    )


def test_refuses_a_deadlock_with_its_cycle() -> None:
    text = "0F0,2F0,2B0,0B0,0F1,2F1,2B1,0B1\n1F1,1F0,1B0,1B1\n"
    with pytest.raises(DeadlockError) as caught:
        lower(Schedule.from_csv(text, name="mine"))
    assert caught.value.cycle == (
        "rank 0 waits at 2F0 for rank 1 to run 1F0",
        "rank 1 waits at 1F1 for rank 0 to run 0F1",
    )


def test_refuses_an_incomplete_schedule() -> None:
    with pytest.raises(ScheduleError, match="stage 1 on rank 1 lacks 1W0"):
        lower(Schedule.from_csv("0F0,0B0\n1F0,1I0\n"))
