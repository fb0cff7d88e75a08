"""Strategies beside the synchronous space: every one simulated, the best one synchronous."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from parsim.cost.jitter import Jitter
from parsim.errors import InputError
from parsim.plan import PlanSpace, Recompute
from parsim.plan.strategies import DDP, AsynchronousServer, LocalSGD, ParameterServer, SingleProcess
from parsim.planner.search import search, search_front
from parsim.report.text.planning.search import search_view
from parsim.report.text.planning.strategies import MARK, TITLE
from parsim.scenario import load_scenario
from parsim.sim import simulate
from tests.parsim.sim.data_parallel.cases import job, plan

STRATEGIES = (
    DDP,
    ParameterServer(servers=1, on="devices"),
    AsynchronousServer(servers=1, updates=20),
    LocalSGD(every=8),
    SingleProcess(),
)


def space(**values: object) -> PlanSpace:
    few = PlanSpace(
        global_batch_size=64, tp=(1,), pp=(1,), cp=(1,), microbatch_size=(4, 8),
        zero_stage=(0, 1), recompute=(Recompute.NONE,), common=plan(workers=1),
        strategies=STRATEGIES,
    )  # fmt: skip
    return replace(few, **values)  # type: ignore[arg-type]


def test_the_best_is_synchronous_unless_asked() -> None:
    """What trains otherwise stands apart, however fast; asked for, it is ranked with the rest."""
    result = search(job(1), space(), top=50)
    assert not any(row.trains_otherwise for row in result.plans)
    assert {row.plan.strategy.name for row in result.apart} == {"local_sgd", "asynchronous_server"}
    assert all(row.trains_otherwise for row in result.apart)
    asked = search(job(1), space(synchronous=False), top=50)
    assert asked.apart == ()
    both = sorted((*result.plans, *result.apart), key=lambda row: row.step_time)
    assert [row.plan for row in asked.plans] == [row.plan for row in both]
    assert "convergence is not compared" in asked.optimality


def test_limits_of_the_space_hold_for_strategies() -> None:
    """A cap on memory, a margin and a largest bubble are those of every plan of a search."""
    spacious = search(job(1), space(synchronous=False), top=50)
    peaks = sorted(row.peak_allocated for row in spacious.plans if row.strategy is not None)
    cap = 0.5 * (peaks[0] + peaks[-1])
    capped = search(job(1), space(synchronous=False, memory_cap=cap), top=50)
    rows = [row for row in capped.plans if row.strategy is not None]
    assert rows
    assert max(row.peak_allocated for row in rows) <= cap
    margined = search(job(1), space(synchronous=False, memory_margin=0.3), top=50)
    assert {row.margin for row in margined.plans} == {0.3}


def test_workers_differ_as_the_jitter_says() -> None:
    """Where it matters who comes first; slow ranks are left aside, as of all plans of a search."""
    loose = space(synchronous=False, strategies=(AsynchronousServer(servers=1, updates=20),))
    spread = Jitter(speed_spread=0.3, noise=0.0, hiccups=0.0)
    slow = replace(spread, slow_ranks=((0, 3.0),))
    rows = {}
    for jitter in (spread, slow):
        result = search(job(1), loose, top=50, jitter=jitter)
        rows[jitter] = [row for row in result.plans if row.strategy is not None]
    first = rows[spread][0]
    assert first.step_time == simulate(job(1), first.plan, jitter=spread).step_time
    assert first.step_time != simulate(job(1), first.plan).step_time
    assert [row.step_time for row in rows[slow]] == [row.step_time for row in rows[spread]]


def test_every_strategy_has_the_numbers_of_its_own_simulation() -> None:
    """And plans with all-reduced gradients are those of a space without strategies."""
    result = search(job(1), space(synchronous=False, microbatch_size=(8,)), top=50)
    alone = search(job(1), space(strategies=(), microbatch_size=(8,)), top=50)
    rows = [row for row in result.plans if row.strategy is not None]
    for row in rows:
        prediction = simulate(job(1), row.plan)
        assert (row.step_time, row.interval) == (prediction.step_time, prediction.interval)
        assert row.peak_allocated == max(prediction.peak_allocated)
    rest = [row.plan for row in result.plans if row.strategy is None]
    assert rest == [row.plan for row in alone.plans]


def test_the_funnel_counts_strategies_by_themselves() -> None:
    few = space(microbatch_size=(2,), strategies=(*STRATEGIES[:2], STRATEGIES[-1]))
    result, alone = search(job(2), few), search(job(2), replace(few, strategies=()))
    counts = {name: n for name, n in result.counts.items() if name.startswith("strategy_")}
    assert {n: c for n, c in result.counts.items() if n not in counts} == alone.counts
    assert counts["strategy_plans"] == sum(
        n for name, n in counts.items() if name != "strategy_plans"
    )
    assert counts["strategy_illegal"] > 0  # one process cannot have two nodes
    assert "each by its own tier, without a bound" in result.optimality
    assert result.optimality.startswith(alone.optimality)
    assert "diloco" in result.left_out["strategy"]
    assert "strategy" not in alone.left_out


def test_a_time_limit_is_told() -> None:
    result = search(job(1), space(), time_limit=1e-9)
    assert "until the search stopped" in result.optimality
    assert result.counts["strategy_evaluated"] == 0


def test_a_front_of_time_and_memory_has_no_strategies() -> None:
    with pytest.raises(InputError, match=r"search\.strategies"):
        search_front(job(1), space())


SCENARIO = """
model: {{name: gpt2}}
cluster: {{system: dgx-1v, nodes: 1}}
software: generic
training: {{global_batch_size: 64, precision: fp16}}
search: {{strategies: {strategies}, synchronous: false}}
"""


def test_a_search_block_names_strategies(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.format(strategies="[ddp, gossip, {name: local_sgd, every: 4}]"))
    read = load_scenario(path).plan_space()
    assert [strategy.label() for strategy in read.strategies] == [
        "ddp",
        "gossip",
        "local_sgd every=4",
    ]
    assert not read.synchronous


@pytest.mark.parametrize(
    ("strategies", "message"),
    [
        ("[gosip]", "gosip"),
        ("[{name: gossip, every: 4}]", "is no option of name=gossip"),
        ("[]", "at least one value"),
    ],
)
def test_a_wrong_strategy_is_refused_at_its_place(
    tmp_path: Path, strategies: str, message: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.format(strategies=strategies))
    with pytest.raises(InputError, match=message) as error:
        load_scenario(path)
    assert "search" in str(error.value)


def test_the_fastest_plan_of_each_strategy_stands_beside_the_all_reduce() -> None:
    result = search(job(1), space(), top=3)
    first, *others = result.fastest
    assert first == result.plans[0] or first.plan.strategy == DDP
    labels = {strategy.label() for strategy in STRATEGIES if strategy.own_program}
    assert {row.plan.strategy.label() for row in others} == labels
    assert [row.step_time for row in others] == sorted(row.step_time for row in others)
    every = search(job(1), space(synchronous=False), top=50).plans
    for row in others:
        same = [each.step_time for each in every if each.plan.strategy == row.plan.strategy]
        assert row.step_time == min(same)
    assert result.planless == {}
    assert len(result.to_json()["fastest_of_strategies"]) == 1 + len(labels)


def test_a_strategy_without_a_plan_says_why() -> None:
    """One process has the devices of one node; a search of two says so."""
    result = search(job(2), space(strategies=(DDP, SingleProcess())), top=3)
    assert "nodes: 1" in result.planless["data_parallel"]
    assert [row.plan.strategy.name for row in result.fastest] == ["ddp"]
    assert search(job(1), space(strategies=(DDP,)), top=3).fastest == ()


def test_people_read_the_fastest_plan_of_each_strategy() -> None:
    """What trains otherwise has a mark, and what has no plan says why."""
    strategies = (DDP, LocalSGD(every=8), ParameterServer(servers=1), SingleProcess())
    result = search(job(2), space(strategies=strategies), top=3)
    page = StringIO()
    Console(file=page, width=200).print(search_view(result))
    told = page.getvalue()
    assert TITLE in told
    for row in result.fastest:
        marked = f"{row.plan.label()} {MARK} "
        assert (marked in told) == row.trains_otherwise
    assert "no plan with data_parallel: strategy.name=data_parallel is one process" in told
