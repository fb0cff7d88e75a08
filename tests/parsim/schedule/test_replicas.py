"""Stages with replicas of their own: round-robin rows, warm-ups, orders that hang."""

from __future__ import annotations

import pytest

from parsim.errors import ScheduleError
from parsim.plan.stages import warmups
from parsim.schedule import Action, Kind, build_schedule
from parsim.schedule.replicas import StageReplicas, in_order


def words(rows: tuple[tuple[Action, ...], ...]) -> list[str]:
    return [" ".join(map(str, row)) for row in rows]


def test_one_replica_each_is_1f1b() -> None:
    assert (
        StageReplicas((1, 1, 1)).rows(5) == build_schedule("1f1b", pp=3, num_microbatches=5).ranks
    )


def test_replicas_take_micro_batches_in_turn() -> None:
    """The picture of the module's docstring."""
    assert words(StageReplicas((2, 1)).rows(4)) == [
        "0F0 0F2 0B0 0B2",
        "0F1 0F3 0B1 0B3",
        "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3",
    ]


@pytest.mark.parametrize(
    ("counts", "warmups"),
    [((15, 1), (1, 0)), ((3, 1), (1, 0)), ((1, 3, 1), (4, 1, 0)), ((9, 5, 1, 1), (1, 1, 1, 0))],
)
def test_warm_ups_of_pipedream(counts: tuple[int, ...], warmups: tuple[int, ...]) -> None:
    """Floor((sum of r_j from s on - 1) / r_s), what its runtime does."""
    assert StageReplicas(counts).warmups == warmups


@pytest.mark.parametrize("counts", [(1, 3, 1), (2, 1, 4), (4, 2, 1), (1, 2, 6), (9, 5, 1, 1)])
@pytest.mark.parametrize("more", [0, 2])
def test_no_order_hangs_and_every_action_comes_once(counts: tuple[int, ...], more: int) -> None:
    replicas = StageReplicas(counts)
    rows = replicas.rows(180, warmups(counts, [None] * (len(counts) - 1) + [more]))
    order = list(in_order(rows, replicas))
    wanted = {
        Action(s, k, m) for s in range(len(counts)) for k in (Kind.F, Kind.B) for m in range(180)
    }
    assert sorted(order) == sorted(wanted)
    for number, row in enumerate(rows):
        assert {replicas.rank(a.stage, a.microbatch) for a in row} == {number}


def test_what_cannot_be_shared_out_is_refused() -> None:
    with pytest.raises(ScheduleError, match="stage 0 has 3 replicas, which 8 micro-batches"):
        StageReplicas((3, 1)).rows(8)
    with pytest.raises(
        ScheduleError, match=r"warm-ups \[0, 0\]: stages begin with at least \[1, 0"
    ):
        StageReplicas((1, 1)).rows(8, (0, 0))
    with pytest.raises(ScheduleError, match="each stage has at least one"):
        StageReplicas((1, 0))
    rows = [
        (Action(0, Kind.B, 0), Action(0, Kind.F, 0)),
        (Action(1, Kind.F, 0), Action(1, Kind.B, 0)),
    ]
    with pytest.raises(ScheduleError, match="hangs: nothing lets 0B0 begin"):
        list(in_order(rows, StageReplicas((1, 1))))
