"""Ranks of a plan's stages are those of the schedule that it is run by."""

from __future__ import annotations

import pytest

from parsim.plan import Plan
from parsim.schedule import CHUNKED, SCHEDULES, V_SHAPED, schedule_of
from parsim.schedule.placement import stage_ranks


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_stages_lie_where_the_schedule_has_them(name: str) -> None:
    several = 4 if name in CHUNKED else 1
    plan = Plan(pp=4, num_microbatches=8, schedule=name, v=2 if name in V_SHAPED else several)
    assert stage_ranks(plan) == list(schedule_of(plan).stage_rank)


def test_stages_of_a_users_schedule_lie_where_its_file_has_them() -> None:
    actions = "1F0,1B0\n0F0,0B0\n"
    plan = Plan(pp=2, schedule="mine.csv", actions=actions)
    assert stage_ranks(plan) == [1, 0]
