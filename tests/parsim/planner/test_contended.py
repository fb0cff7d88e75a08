"""The best plans of a search on shared links: their order and the warning."""

from __future__ import annotations

from parsim.plan import Plan
from parsim.planner.contended import ContendedOrder
from parsim.sim.contention.contention import Contention
from parsim.sim.contention.link_use import Bottleneck


def plans(*seconds: float) -> ContendedOrder:
    full = Bottleneck(
        link="nic:0.0->leaf:0.0", link_class="nic", saturated=0.5, alike=8, busy=0.5, used=1.0
    )
    return ContendedOrder(
        plans=tuple(
            Contention(
                plan=Plan(tp=2**i), alone=1.0 + i, step_time=step, bottleneck=full, classes=()
            )
            for i, step in enumerate(seconds)
        )
    )


def test_the_order_stays_where_all_slow_down_alike() -> None:
    result = plans(1.1, 2.2, 3.3)
    assert result.order == (0, 1, 2)
    assert result.warning == ""
    assert result.to_json()["order_changes"] is False


def test_equal_times_keep_the_order_of_the_search() -> None:
    assert plans(2.0, 2.0, 2.0).order == (0, 1, 2)


def test_the_warning_names_the_first_that_moves_and_why() -> None:
    result = plans(1.0, 3.5, 3.0)
    assert result.order == (0, 2, 1)
    assert result.warning == (
        "contention changes the order: #3 tp4 pp1 dp1 mb1 m1 no-pipeline takes 3 s on shared "
        "links, #2 tp2 pp1 dp1 mb1 m1 no-pipeline 3.5 s (nic:0.0->leaf:0.0 is full for 0.5 s)"
    )
    document = result.to_json()
    assert document["order"] == [1, 3, 2]
    assert [entry["place"] for entry in document["plans"]] == [1, 2, 3]
