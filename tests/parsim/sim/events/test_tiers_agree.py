"""Tier B and tier C give the same times: bit for bit where sums are exact."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from parsim.cost.step.costs import StepCosts
from parsim.schedule import build_schedule
from parsim.sim.recurrence import maxplus
from parsim.sim.recurrence.evaluate import pipeline
from parsim.sim.recurrence.maxplus import step_end
from parsim.sim.step.compiled_schedule import CompiledSchedule, compile_repeated, compile_schedule
from parsim.strategy.synchronous import LATE
from tests.parsim.sim.cases import random_case, random_costs, side_by_side
from tests.parsim.sim.tiers import both_tiers, finish_events, finish_times, reduced_events


@pytest.mark.parametrize("hundred", range(10))
def test_every_finish_time_is_bit_equal(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        case = random_case(seed)
        graph, result, end, recorded = both_tiers(case)
        assert finish_times(graph, result) == finish_events(case, recorded), seed
        assert result.clock[:, 0].tolist() == recorded.pipelines[0].clock, seed
        assert end.times[LATE].ready[:, 0].tolist() == reduced_events(recorded), seed
        assert float(end.updated[0]) == recorded.updated, seed
        assert float(end.step_time[0]) == recorded.step_time, seed


def test_times_that_round_agree_to_twelve_digits() -> None:
    for seed in range(200):
        case = random_case(seed, dyadic=False)
        graph, result, end, recorded = both_tiers(case)
        b, c = finish_times(graph, result), finish_events(case, recorded)
        assert b.keys() == c.keys()
        np.testing.assert_allclose([b[a] for a in b], [c[a] for a in b], rtol=1e-12, err_msg=seed)
        assert float(end.step_time[0]) == pytest.approx(recorded.step_time, rel=1e-12)


def test_the_random_cases_cover_all_switches() -> None:
    cases = [random_case(seed) for seed in range(1000)]
    seen = {
        (c.schedule.name, c.costs.blocking_p2p, c.costs.overlap_reduce, bool(c.costs.tied[0] > 0))
        for c in cases
    }
    assert len(seen) == 4 * 2 * 2 * 2
    assert {c.schedule.pp for c in cases} == set(range(1, 7))
    assert max(c.schedule.v for c in cases) == 3


def same_shape(seed: int, count: int) -> tuple[CompiledSchedule, list[StepCosts]]:
    """One random schedule and plans for it that share their switches."""
    first = random_case(seed)
    costs = [random_costs(first.schedule, random.Random(other)) for other in range(count)]
    shared = [replace(c, blocking_p2p=seed % 2 > 0, overlap_reduce=seed % 4 > 1) for c in costs]
    return compile_schedule(first.schedule), shared


@pytest.mark.parametrize("seed", range(8))
def test_a_batch_equals_its_plans_one_by_one(seed: int) -> None:
    graph, plans = same_shape(seed, 7)
    batch = side_by_side(plans)
    together = step_end(graph, batch, pipeline(graph, batch))
    alone = [step_end(graph, costs, pipeline(graph, costs)) for costs in plans]
    assert together.step_time.tolist() == [float(entry.step_time[0]) for entry in alone]


def test_blocks_of_plans_do_not_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, plans = same_shape(1, 5)
    batch = side_by_side(plans)
    whole = pipeline(graph, batch, keep=True)
    monkeypatch.setattr(maxplus, "TABLE_ELEMENTS", 1)
    pieces = pipeline(graph, batch, keep=True)
    assert whole.finish is not None
    assert pieces.finish is not None
    assert np.array_equal(whole.finish, pieces.finish)
    assert np.array_equal(whole.clock, pieces.clock)
    assert np.array_equal(whole.last_end, pieces.last_end)


@pytest.mark.parametrize("seed", range(20))
def test_finish_times_need_not_be_kept(seed: int) -> None:
    case = random_case(seed)
    graph = compile_schedule(case.schedule)
    kept, dropped = (pipeline(graph, case.costs, keep=keep) for keep in (True, False))
    assert dropped.finish is None
    assert np.array_equal(kept.clock, dropped.clock)
    assert np.array_equal(kept.last_end, dropped.last_end)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_repeated_chains_of_naive_are_the_whole_graph(seed: int, blocking: bool) -> None:
    rng = random.Random(seed)
    schedule = build_schedule("naive", pp=rng.randint(1, 6), num_microbatches=rng.randint(1, 9))
    costs = replace(random_costs(schedule, rng), blocking_p2p=blocking)
    whole, compact = (
        step_end(graph, costs, pipeline(graph, costs))
        for graph in (compile_schedule(schedule), compile_repeated(schedule))
    )
    assert compact.times[LATE].ready.tolist() == whole.times[LATE].ready.tolist()
    assert compact.step_time.tolist() == whole.step_time.tolist()


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_other_schedules_are_not_repeated(name: str) -> None:
    assert compile_repeated(build_schedule(name, pp=2, num_microbatches=3)).repeats == 1
