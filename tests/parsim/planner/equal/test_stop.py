"""Searches that end before all plans are listed or bounded say of which ones nothing is known."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from parsim.cost.job import Job
from parsim.plan import PlanSpace
from parsim.planner import search
from parsim.planner.bounds import PlanBounds, plan_bounds
from parsim.planner.equal.best_shapes import BestShapes
from parsim.planner.equal.seen import Seen
from parsim.planner.search import search_front
from parsim.planner.space import enumerate_plans
from parsim.scenario import load_scenario
from parsim.sim import simulate
from tests.commands import GPT3

UNKNOWN = ": of these plans nothing is known"


@pytest.fixture(scope="module")
def narrow(space: PlanSpace) -> PlanSpace:
    """A part of the space that takes a moment to search."""
    return replace(space, schedule=("1f1b", "interleaved_1f1b"), zero_stage=(0, 1), cp=(1,))


def test_a_search_whose_time_is_up_at_once_lists_few_plans_and_says_so() -> None:
    """GPT-3 on 1,024 devices has 7.8 million plans, which take seconds to list and to bound."""
    scenario = load_scenario(GPT3, {"search.space": "full"})
    result = search(scenario.job, scenario.plan_space(), time_limit=0.0)
    assert result.counts["enumerated"] < 1_000_000
    words = result.optimality
    assert re.search(r"best so far; \d+ of 700 degrees were not listed and 33 of 36 combi", words)
    assert UNKNOWN in words
    assert not re.search("proven|at most", words)
    best = result.plans[0]
    assert simulate(scenario.job, best.plan).step_time == pytest.approx(best.step_time, rel=1e-12)


def test_plans_without_a_bound_leave_the_gap_open(job: Job, narrow: PlanSpace) -> None:
    """Settings whose plans were listed, but not bounded in time."""
    varied = replace(narrow, varied={"overlap_p2p": (False, True)})
    whole = search(job, varied, time_limit=60.0)
    assert whole.optimality.startswith("proven: ")
    assert whole.plans == search(job, varied).plans
    early = search(job, varied, time_limit=0.0)
    assert UNKNOWN in early.optimality
    front = search_front(job, varied, time_limit=0.0)
    assert UNKNOWN in front.optimality


def test_an_interruption_while_plans_are_bounded_leaves_the_best_of_a_few(
    job: Job, narrow: PlanSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def interrupted_once(*arguments: Any) -> PlanBounds:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return plan_bounds(*arguments)

    monkeypatch.setattr(sys.modules["parsim.planner.equal.seen"], "plan_bounds", interrupted_once)
    result = search(job, narrow)
    assert result.optimality.startswith("interrupted after ")
    assert result.plans


def test_an_interruption_while_more_plans_are_bounded_does_not_lose_them(
    job: Job, narrow: PlanSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is proven counts with plans that left the queue and were not looked at."""
    monkeypatch.setattr(sys.modules["parsim.planner.equal.unseen"], "AT_ONCE", 8)
    families = enumerate_plans(job, narrow).families
    assert families is not None
    work = BestShapes(job, families, narrow, 10**6)
    leasts: list[float] = []

    def interrupted(*_: object) -> None:
        leasts.append(work.in_hand)
        raise KeyboardInterrupt

    monkeypatch.setattr(Seen, "of", interrupted)
    work.run(None)
    assert work.stopped == "interrupted"
    assert work.undecided <= leasts[0] < work.least
