from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsim.errors import DeadlockError, ScheduleError
from parsim.schedule.actions import Action, Kind
from parsim.schedule.schedule import Schedule

NUMBERS = st.integers(0, 999_999_999)
ACTIONS = st.sampled_from(Kind).flatmap(
    lambda kind: st.builds(
        Action, NUMBERS, st.just(kind), NUMBERS if kind.has_microbatch else st.just(-1)
    )
)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("2F0", Action(2, Kind.F, 0)),
        ("0B12", Action(0, Kind.B, 12)),
        ("1I3", Action(1, Kind.I, 3)),
        ("1W3", Action(1, Kind.W, 3)),
        ("1SEND_F3", Action(1, Kind.SEND_F, 3)),
        ("10RECV_B7", Action(10, Kind.RECV_B, 7)),
        ("1UNSHARD", Action(1, Kind.UNSHARD)),
        ("0REDUCE_GRAD", Action(0, Kind.REDUCE_GRAD)),
    ],
)
def test_action_text(text: str, action: Action) -> None:
    assert str(action) == text
    assert Action.parse(text) == action
    assert type(Action.parse(text).kind) is Kind


@given(ACTIONS)
def test_action_text_round_trip(action: Action) -> None:
    assert Action.parse(str(action)) == action
    assert Action.parse(f" {action} ") == action


@pytest.mark.parametrize(
    "text", ["", "F0", "2X0", "2f0", "-1F0", "1F-1", "1F0 2F0", "1SEND_3", "1F1.5", "\u0661F0"]
)
def test_bad_action_names_the_text_and_what_is_allowed(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Action.parse(text)
    assert str(caught.value).startswith(f"{text!r} is not an action; expected <stage><kind>")
    assert "kinds: F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD" in str(caught.value)


def test_microbatch_missing_or_too_much() -> None:
    with pytest.raises(ScheduleError, match=r"action '2F' lacks its microbatch; .* as in 2F0"):
        Action.parse("2F")
    with pytest.raises(ScheduleError, match=r"'1UNSHARD3' has a microbatch.*write 1UNSHARD$"):
        Action.parse("1UNSHARD3")


@given(seed=st.integers(0, 10**6))
def test_csv_round_trip(random_schedule: Callable[[int], Schedule], seed: int) -> None:
    schedule = random_schedule(seed)
    assert Schedule.from_csv(schedule.to_csv(), name=schedule.name) == schedule


def test_csv_is_one_row_per_rank() -> None:
    schedule = Schedule.from_csv("0F0,0B0\n1F0,1B0\n")
    assert schedule.to_csv() == "0F0,0B0\r\n1F0,1B0\r\n"


def test_csv_skips_empty_cells_and_infers_the_placement() -> None:
    schedule = Schedule.from_csv(",1F0,, 1B0\n0F0,,,,0B0,2F0,2B0\n\n", name="mine")
    assert schedule.stage_rank == (1, 0, 1)
    assert (schedule.pp, schedule.num_stages, schedule.v, schedule.num_microbatches) == (2, 3, 2, 1)
    assert schedule.stages_on(1) == (0, 2)
    assert schedule.to_csv() == "1F0,1B0\r\n0F0,0B0,2F0,2B0\r\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1F0,oops\n", "x:2, cell 2: 'oops' is not an action; expected <stage>"),
        ("0F0\n0B0\n", "x: stage 0 is on ranks 0 and 1; a stage belongs to one rank"),
        ("0F0,0B0\n2F0,2B0\n", "x: stage 1 is on no rank, but stage 2 is; stages must be numbered"),
        ("0F0,0B0\n\n1F0,1B0\n", "x: rank 1 has no action on a micro-batch"),
        ("0UNSHARD\n", "x: rank 0 has no action on a micro-batch"),
        ("", "x: no actions; expected one row of actions per pipeline rank"),
    ],
)
def test_bad_csv(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule.from_csv(text, name="x")
    assert str(caught.value).startswith(message)


def test_staircase_of_a_split_backward() -> None:
    schedule = Schedule.from_csv("0F0,0F1,0I0,0W0,0B1\n1F0,1I0,1F1,1I1,1W0,1W1\n")
    assert schedule.staircase() == (
        "rank 0 | 0F0 0F1 ... 0I0 0W0 0B1 ...\nrank 1 | ... 1F0 1I0 1F1 1I1 1W0 1W1\n"
    )


def test_staircase_of_a_deadlock() -> None:
    with pytest.raises(DeadlockError, match="stuck: no rank can go on; check_schedule names"):
        Schedule.from_csv("0B0,0F0\n1F0,1B0\n", name="stuck").staircase()
