"""Orders where messages take time."""

from __future__ import annotations

import pytest

from parsim.schedule import build_schedule
from parsim.schedule.orders.list_order import makespan
from parsim.schedule.orders.work import Work


@pytest.mark.parametrize("name", ["hanayo", "chimera"])
@pytest.mark.parametrize("message", [0.01, 0.1])
def test_short_messages_make_no_listed_order_worse_than_one_without(
    name: str, message: float
) -> None:
    """An order that was listed as if messages took no time is one of those that are tried."""
    v, times = 2 if name == "hanayo" else 1, (1.0, 1.0, 1.0, message, 1.0)
    short = build_schedule(name, pp=8, num_microbatches=16, v=v)
    told = build_schedule(name, pp=8, num_microbatches=16, v=v, times=times)
    one_each = [1.0] * short.num_stages
    ours = Work(
        stage_rank=short.stage_rank,
        num_microbatches=16,
        forward=one_each,
        backward=[2.0] * short.num_stages,
        limits=[16 * v] * 8,
        message=message,
        copies=short.copies,
    )
    assert makespan(ours, told.ranks) <= makespan(ours, short.ranks)
