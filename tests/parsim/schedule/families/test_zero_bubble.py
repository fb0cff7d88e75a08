"""Zero-bubble schedules: the papers' closed forms, their memory, and what is searched for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.errors import ScheduleError
from parsim.plan.names import CHUNKED as NAMED_CHUNKED
from parsim.plan.names import SPLIT
from parsim.plan.names import V_SHAPED as NAMED_V_SHAPED
from parsim.schedule import (
    CHUNKED,
    SCHEDULES,
    TIMED,
    TWO_WAY,
    V_SHAPED,
    Action,
    ActionTimes,
    Kind,
    Schedule,
    Times,
    build_schedule,
)
from parsim.schedule.check import check_schedule
from parsim.schedule.inflight import inflight_counts, split_counts
from parsim.schedule.orders.weight_fill import EQUAL, POLICIES, fill

SIZES = [(2, 4), (2, 8), (3, 6), (4, 8), (4, 16), (5, 12), (8, 32)]
UNEQUAL = ActionTimes(forward=4.0, backward_input=3.5, backward_weight=2.0, message=0.25)


def built(name: str, pp: int, m: int, times: Times | None = None) -> Schedule:
    v = 2 if name in V_SHAPED else 1
    return build_schedule(name, pp=pp, num_microbatches=m, v=v, times=times)


def seconds(schedule: Schedule, times: ActionTimes = EQUAL) -> tuple[float, float]:
    """(longest time of a rank from first start to last end, end of all), action by action."""
    length = {
        Kind.F: times.forward,
        Kind.B: times.backward_input + times.backward_weight,
        Kind.I: times.backward_input,
        Kind.W: times.backward_weight,
    }
    end: dict[Action, float] = {}
    first: dict[int, float] = {}
    clock, at = [0.0] * schedule.pp, [0] * schedule.pp
    last = schedule.num_stages - 1
    while any(at[rank] < len(row) for rank, row in enumerate(schedule.ranks)):
        for rank, row in enumerate(schedule.ranks):
            while at[rank] < len(row):
                stage, kind, mb = action = row[at[rank]]
                needs = {
                    Kind.F: Action(stage - 1, Kind.F, mb) if stage else None,
                    Kind.I: Action(stage + 1, Kind.I, mb)
                    if stage < last
                    else Action(stage, Kind.F, mb),
                    Kind.W: Action(stage, Kind.I, mb),
                }[kind]
                if needs is not None and needs not in end:
                    break
                start = clock[rank]
                if needs is not None:
                    same = schedule.stage_rank[needs.stage] == rank
                    start = max(start, end[needs] + (0.0 if same else times.message))
                first.setdefault(rank, start)
                clock[rank] = end[action] = start + length[kind]
                at[rank] += 1
    return max(c - first[rank] for rank, c in enumerate(clock)), max(clock)


def most_held(schedule: Schedule, rank: int) -> int:
    return max(map(sum, inflight_counts(schedule)[rank]))


def test_the_names_that_layers_share() -> None:
    assert V_SHAPED == NAMED_V_SHAPED
    assert set(SCHEDULES) >= TIMED | SPLIT
    assert NAMED_CHUNKED == CHUNKED
    for name in SCHEDULES:
        kinds = {a.kind for row in _any(name).ranks for a in row}
        assert (Kind.W in kinds) == (name in SPLIT)


def _any(name: str) -> Schedule:
    v = 2 if name in V_SHAPED | CHUNKED else 1
    return build_schedule(name, pp=2, num_microbatches=4, v=v)


# ---------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize(("pp", "m"), SIZES)
@pytest.mark.parametrize("times", [(1.0, 1.0, 1.0), (4.0, 3.0, 2.0), (4.0, 3.5, 3.0)])
def test_bubble_of_h1(pp: int, m: int, times: tuple[float, float, float]) -> None:
    """(p - 1)(F + I - W), for W no longer than I and F (arXiv 2401.10241, table 2)."""
    f, i, w = times
    taken = ActionTimes(forward=f, backward_input=i, backward_weight=w)
    span, makespan = seconds(built("zb_h1", pp, m), taken)
    assert span == makespan == m * (f + i + w) + (pp - 1) * (f + i - w)


@pytest.mark.parametrize(("pp", "m"), [(p, m) for p, m in SIZES if m >= 2 * p])
@pytest.mark.parametrize("name", ["zb_h2", "zb_2p", "zb_auto", "zb_v"])
def test_no_bubble_within_a_rank(name: str, pp: int, m: int) -> None:
    chunks = 2 if name == "zb_v" else 1
    span, makespan = seconds(built(name, pp, m))
    assert span == 3 * m * chunks
    assert makespan == span + pp - 1  # the last rank begins pp - 1 slots behind the first


@pytest.mark.parametrize(("pp", "m"), [(p, m) for p, m in SIZES if m >= 2 * p])
def test_bubble_of_h2(pp: int, m: int) -> None:
    """(p - 1)(F + I - 2W) within a rank."""
    taken = ActionTimes(forward=4.0, backward_input=4.0, backward_weight=3.0)
    assert seconds(built("zb_h2", pp, m), taken)[0] == 11 * m + (pp - 1) * 2


@pytest.mark.parametrize(("pp", "m"), SIZES)
def test_bubble_of_searched_within_the_memory_of_1f1b(pp: int, m: int) -> None:
    assert seconds(built("zb_1p", pp, m))[0] <= 3 * m + pp - 1


@pytest.mark.parametrize("pp", range(2, 17))
def test_bubbles_of_v_half_and_v_min(pp: int) -> None:
    """Half of 1F1B's 3 (p - 1), and two thirds with a little more (arXiv 2405.15362)."""
    m, whole = 4 * pp, 6 * (pp - 1)  # in slots of a chunk, which is half of a stage
    assert seconds(built("v_half", pp, m))[1] - 6 * m <= whole / 2
    assert seconds(built("v_min", pp, m))[1] - 6 * m <= whole * 2 / 3 + 2


AUTHORS = {
    # 8 ranks, F I W of 18.522 18.086 9.337 (half of it a chunk) and a message of 0.601
    ("zb_1p", 24): 0.1585,
    ("zb_1p", 32): 0.1238,
    ("zb_1p", 64): 0.0660,
    ("zb_2p", 24): 0.0433,
    ("zb_2p", 32): 0.0036,
    ("zb_2p", 64): 0.0018,
    ("zb_v", 24): 0.0703,
    ("zb_v", 32): 0.0536,
    ("zb_v", 64): 0.0276,
    ("v_half", 24): 0.1702,
    ("v_half", 32): 0.1333,
    ("v_half", 64): 0.0714,
    ("v_min", 24): 0.3353,
    ("v_min", 32): 0.3089,
    ("v_min", 64): 0.2652,
}
"""Bubbles of the authors' own schedulers, run for the comparison: zb.py, zbv.py and zbv_greedy.py
of sail-sg/zero-bubble-pipeline-parallelism 39f2c186, with M_W / M_B = 0.369 (h 2304, a 24, s 1024);
the last one's V-Half and V-Min are searched at 1:1:1 and timed with these."""


@pytest.mark.parametrize(("name", "m"), AUTHORS)
def test_bubbles_are_those_of_the_authors_schedulers(name: str, m: int) -> None:
    share = 0.5 if name in V_SHAPED else 1.0
    each = (share * 18.522, share * 18.086, share * 9.337)
    schedule = built(name, 8, m, (*each, 0.601, 0.369))
    taken = ActionTimes(
        forward=each[0], backward_input=each[1], backward_weight=each[2], message=0.601
    )
    bubble = 1.0 - m * sum(each) / share / seconds(schedule, taken)[0]
    assert bubble == pytest.approx(AUTHORS[name, m], abs=1e-4)


# ---------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(("pp", "m"), SIZES)
@pytest.mark.parametrize("times", [None, (4.0, 3.5, 2.0, 0.25, 1.0)])
def test_memory_in_micro_batches(pp: int, m: int, times: Times | None) -> None:
    def peak(name: str) -> float:
        schedule = built(name, pp, m, times)
        share = 0.5 if name in V_SHAPED else 1.0
        return share * max(most_held(schedule, rank) for rank in range(pp))

    assert peak("zb_h1") == min(pp, m)
    assert peak("zb_h2") == min(2 * pp - 1, m)
    assert peak("zb_1p") <= pp
    assert peak("zb_2p") <= 2 * pp
    assert peak("zb_auto") <= 2 * pp
    assert peak("zb_v") <= pp
    assert peak("v_half") <= (pp + 2) // 2
    assert peak("v_min") <= (pp + 4) // 3


def test_every_rank_of_h1_holds_as_much_as_rank_0() -> None:
    assert [most_held(built("zb_h1", 4, 8), rank) for rank in range(4)] == [4, 4, 4, 4]
    assert [most_held(built("1f1b", 4, 8), rank) for rank in range(4)] == [4, 3, 2, 1]


@given(name=st.sampled_from(sorted(SPLIT - TWO_WAY)), pp=st.integers(2, 4), m=st.integers(1, 9))
@settings(deadline=None)
def test_both_counts_together_are_those_in_flight(name: str, pp: int, m: int) -> None:
    schedule = built(name, pp, m)
    for rank, vectors in enumerate(split_counts(schedule)):
        chunks = len(schedule.stages_on(rank))
        sums = [sum(vector) for vector in vectors]
        assert max(sums) == most_held(schedule, rank)
        # what has not run its I alone is never more
        assert max(sum(vector[:chunks]) for vector in vectors) <= max(sums)


# ---------------------------------------------------------------------------- what is searched for


@pytest.mark.parametrize(("pp", "m"), SIZES)
def test_auto_is_the_shortest_and_memory_helps(pp: int, m: int) -> None:
    times = (4.0, 3.5, 2.0, 0.25, 0.4)
    span = {n: seconds(built(n, pp, m, times), UNEQUAL)[0] for n in ("zb_1p", "zb_2p", "zb_auto")}
    assert span["zb_auto"] <= span["zb_2p"] <= span["zb_1p"]
    assert span["zb_1p"] <= seconds(built("zb_h1", pp, m), UNEQUAL)[0]


def test_what_w_needs_decides_how_long_it_can_wait() -> None:
    """With room for all the waiting ones the last rank runs no W before its last I."""
    little, whole = (built("zb_2p", 4, 12, (4.0, 4.0, 2.0, 0.0, kept)) for kept in (0.3, 1.0))
    taken = ActionTimes(forward=4.0, backward_input=4.0, backward_weight=2.0)
    assert seconds(little, taken)[0] < seconds(whole, taken)[0]
    kinds = [a.kind for a in little.ranks[-1]]
    assert kinds[-12:] == [Kind.W] * 12


@given(
    name=st.sampled_from(sorted(TIMED & SPLIT)),
    pp=st.integers(2, 5),
    m=st.integers(1, 12),
    times=st.tuples(*[st.floats(0.1, 3.0)] * 3, st.floats(0.0, 1.0), st.floats(0.1, 1.0)),
)
@settings(deadline=None)
def test_any_times_give_a_legal_schedule(name: str, pp: int, m: int, times: Times) -> None:
    schedule = built(name, pp, m, times)
    check_schedule(schedule)
    assert schedule.num_microbatches == m


def test_a_filling_that_cannot_be() -> None:
    order = ((Action(0, Kind.F, 0), Action(0, Kind.F, 1), Action(0, Kind.I, 0)),)
    with pytest.raises(ScheduleError, match="0F1 needs more than 1 chunks in flight"):
        fill(order, (0,), EQUAL, limit=1, policy=POLICIES[0])
    back = ((Action(0, Kind.I, 0), Action(0, Kind.F, 0)),)
    with pytest.raises(ScheduleError, match="wait for each other"):
        fill(back, (0,), EQUAL, limit=1)


def test_a_v_has_two_chunks() -> None:
    with pytest.raises(ScheduleError, match="zb_v has two chunks per rank, but v=1; use v=2"):
        build_schedule("zb_v", pp=2, num_microbatches=2)
    with pytest.raises(ScheduleError, match="zb_h1 has one chunk per rank, but v=2"):
        build_schedule("zb_h1", pp=2, num_microbatches=2, v=2)
    assert built("zb_v", 4, 4).stage_rank == (0, 1, 2, 3, 3, 2, 1, 0)
