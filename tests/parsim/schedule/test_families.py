from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parsim.errors import ScheduleError
from parsim.schedule import CHUNKED, SCHEDULES, TWO_WAY, V_SHAPED, build_schedule
from parsim.schedule.check import check_schedule
from parsim.schedule.lowering import lower

GOLDEN = {
    "naive_p3_m2": ("naive", 3, 2, 1),
    "gpipe_p4_m4": ("gpipe", 4, 4, 1),
    "1f1b_p4_m8": ("1f1b", 4, 8, 1),
    "interleaved_p4_m8_v2": ("interleaved_1f1b", 4, 8, 2),
    "zb_h1_p4_m8": ("zb_h1", 4, 8, 1),
    "zb_h2_p4_m8": ("zb_h2", 4, 8, 1),
    "zb_1p_p4_m8": ("zb_1p", 4, 8, 1),
    "zb_2p_p4_m8": ("zb_2p", 4, 8, 1),
    "zb_v_p4_m8": ("zb_v", 4, 8, 2),
    "v_half_p4_m8": ("v_half", 4, 8, 2),
    "v_min_p4_m8": ("v_min", 4, 8, 2),
    "eager_1f1b_p4_m8": ("eager_1f1b", 4, 8, 1),
    "bpipe_p4_m8": ("bpipe", 4, 8, 1),
    "looped_bfs_p4_m4_v2": ("looped_bfs", 4, 4, 2),
    "hanayo_p4_m4_v2": ("hanayo", 4, 4, 2),
    "hanayo_p4_m4_v4": ("hanayo", 4, 4, 4),
    "chimera_p4_m4": ("chimera", 4, 4, 1),
    "dualpipe_p4_m8": ("dualpipe", 4, 8, 1),
    "dualpipe_v_p4_m8": ("dualpipe_v", 4, 8, 2),
}


def accepts(pp: int, m: int) -> bool:
    return m % max(1, m // pp) == 0


def allowed(name: str, pp: int, m: int) -> bool:
    if name in TWO_WAY:
        return pp % 2 == 0 == m % 2
    return name != "interleaved_1f1b" or accepts(pp, m)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_staircase(golden: Callable[[str], bytes], name: str) -> None:
    schedule, pp, m, v = GOLDEN[name]
    drawn = build_schedule(schedule, pp=pp, num_microbatches=m, v=v).staircase()
    assert drawn.encode() == golden(name)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("pp", range(1, 7))
def test_every_size_is_complete_and_finishes(name: str, pp: int) -> None:
    v = 4 if name == "hanayo" else 3 if name in CHUNKED else 2 if name in V_SHAPED else 1
    for m in (m for m in range(1, 15) if allowed(name, pp, m)):
        schedule = build_schedule(name, pp=pp, num_microbatches=m, v=v)
        check_schedule(schedule)
        check_schedule(lower(schedule), sends="rendezvous")
        assert (schedule.name, schedule.pp, schedule.v) == (name, pp, v)
        assert schedule.num_stages == pp * v * schedule.copies


@pytest.mark.parametrize(("name", "bubble_slots"), [("gpipe", 6), ("1f1b", 6), ("naive", 6 * 8)])
def test_bubble_of_unit_slots(name: str, bubble_slots: int) -> None:
    # (p-1)(F+X) = 3*2 slots for GPipe and 1F1B, and once per micro-batch for naive; 16 are busy.
    first = build_schedule(name, pp=4, num_microbatches=8).staircase().splitlines()[0]
    assert len(first.split("|")[1].split()) == 16 + bubble_slots


def test_interleaving_divides_the_bubble() -> None:
    # In slots of 1/v of a stage: (p-1)(F+X)/v of the whole = 3*2 slots beside 2*8*v busy ones.
    drawn = build_schedule("interleaved_1f1b", pp=4, num_microbatches=8, v=2).staircase()
    assert len(drawn.splitlines()[0].split("|")[1].split()) == 32 + 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "1f1", "pp": 2, "num_microbatches": 2},
            "unknown schedule '1f1' (did you mean '1f1b'?); "
            "nearest of 19: 1f1b, eager_1f1b, interleaved_1f1b, zb_h1, zb_1p",
        ),
        (
            {"name": "gpipe", "pp": 2, "num_microbatches": 2, "v": 2},
            "schedule gpipe has one chunk per rank, but v=2; use hanayo, interleaved_1f1b, "
            "looped_bfs or v=1",
        ),
        (
            {"name": "interleaved_1f1b", "pp": 2, "num_microbatches": 2},
            "interleaved_1f1b needs at least two chunks per rank, but v=1; "
            "allowed: 2, 3, 4, ...; for one chunk use the schedule 1f1b",
        ),
        (
            {"name": "interleaved_1f1b", "pp": 4, "num_microbatches": 11, "v": 2},
            "num_microbatches=11 is not a multiple of its 2 rounds (num_microbatches // pp with "
            "pp=4), which interleaved_1f1b needs; nearest allowed: 10, 12; every multiple of pp is",
        ),
        (
            {"name": "chimera", "pp": 3, "num_microbatches": 4},
            "schedule chimera runs in two directions, but pp=3 is odd; allowed: 2, 4, 6, ...",
        ),
        (
            {"name": "dualpipe", "pp": 4, "num_microbatches": 7},
            "schedule dualpipe runs in two directions, but num_microbatches=7 is odd; allowed: "
            "2, 4, 6, ...",
        ),
        (
            {"name": "hanayo", "pp": 4, "num_microbatches": 7, "v": 3},
            "hanayo has two chunks per rank and wave, but v=3; allowed: 2, 4, 6, ...",
        ),
        (
            {"name": "naive", "pp": 0, "num_microbatches": 2},
            "pp=0 is too small; allowed: 1, 2, 3, ...",
        ),
        (
            {"name": "1f1b", "pp": 2, "num_microbatches": 0},
            "num_microbatches=0 is too small; allowed: 1, 2, 3, ...",
        ),
        (
            {"name": "interleaved_1f1b", "pp": 2, "num_microbatches": 2, "v": -1},
            "v=-1 is too small; allowed: 1, 2, 3, ...",
        ),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    name = arguments.pop("name")
    with pytest.raises(ScheduleError) as caught:
        build_schedule(name, **arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("m", [m for m in range(1, 40) if not accepts(5, m)])
def test_nearest_allowed_is_allowed(m: int) -> None:
    with pytest.raises(ScheduleError) as caught:
        build_schedule("interleaved_1f1b", pp=5, num_microbatches=m, v=2)
    near = str(caught.value).split("nearest allowed: ")[1].split(";")[0]
    below, above = map(int, near.split(", "))
    assert below < m < above
    assert accepts(5, below)
    assert accepts(5, above)
