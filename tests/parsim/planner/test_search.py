"""The search against simulating every plan by itself."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from parsim.cost.job import Job
from parsim.errors import NoFeasiblePlan
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.planner import Ranked, SearchResult, search
from parsim.planner.bounds import PlanBounds, plan_bounds
from parsim.planner.equal.best_plans import how_far
from parsim.planner.equal.best_shapes import BestShapes
from parsim.planner.equal.exact import ExactShape
from parsim.planner.search import Progress
from parsim.planner.space import enumerate_plans
from parsim.planner.stop import PATIENCE
from parsim.schedule import build_schedule
from parsim.sim import Prediction, simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.recurrence.evaluate import Evaluation, evaluate_step
from parsim.sim.step.compiled_schedule import compile_repeated, compile_schedule
from parsim.sim.step.priced_step import price_step
from parsim.sim.step_breakdown import breakdown
from tests.parsim.planner.conftest import with_memory


@pytest.fixture(scope="module")
def space(space: PlanSpace) -> PlanSpace:
    """A part of it of which every plan can be simulated within seconds."""
    return replace(
        space,
        schedule=("naive", "hanayo", "1f1b", "interleaved_1f1b", "zb_h2", "zb_auto", "zb_v"),
        tp=(1, 2),
        microbatch_size=(2,),
        recompute=(Recompute.NONE, Recompute.FULL),
        zero_stage=(0, 1),
        sequence_parallel=(False,),
    )


@pytest.fixture(scope="module")
def predicted(job: Job, space: PlanSpace) -> dict[Plan, Prediction]:
    """Every legal plan, simulated alone."""
    table = enumerate_plans(job, space).table
    assert table is not None
    plans = [table.plan(row) for row in range(len(table))]
    return {plan: simulate(job, plan) for plan in plans}


@pytest.fixture(scope="module")
def everything(job: Job, space: PlanSpace) -> SearchResult:
    return search(job, space, top=10**6)


def peak(prediction: Prediction) -> float:
    return max(prediction.peak_allocated)


def room(prediction: Prediction) -> float:
    """Memory beside the context that a plan needs to fit, the allocator's reserve counted."""
    return max(prediction.peak_reserved) / (1.0 - prediction.margin.share)


def middle(predicted: dict[Plan, Prediction]) -> float:
    """Memory that about half of the plans fit in."""
    rooms = sorted(map(room, predicted.values()))
    return (rooms[len(rooms) // 2] + rooms[len(rooms) // 2 + 1]) / 2


def agree(entry: Ranked, alone: Prediction) -> bool:
    """A plan of a result has the numbers of its own simulation."""
    return (
        entry.step_time == pytest.approx(alone.step_time, rel=1e-12)
        and entry.tokens_per_second == pytest.approx(alone.tokens_per_second, rel=1e-12)
        and entry.mfu == pytest.approx(alone.mfu, rel=1e-12)
        and entry.bubble_fraction == pytest.approx(alone.bubble_fraction, abs=1e-12)
        and entry.peak_allocated == pytest.approx(peak(alone), rel=1e-12)
    )


# --------------------------------------------------------------------------- the whole space


def test_every_plan_has_the_numbers_of_its_own_simulation(
    everything: SearchResult, predicted: dict[Plan, Prediction]
) -> None:
    assert {entry.plan for entry in everything.plans} == set(predicted)
    wrong = [e.plan.label() for e in everything.plans if not agree(e, predicted[e.plan])]
    assert wrong == []


def test_the_best_is_the_best_of_all(
    everything: SearchResult, predicted: dict[Plan, Prediction]
) -> None:
    fastest = min(item.step_time for item in predicted.values())
    assert everything.plans[0].step_time == pytest.approx(fastest, rel=1e-12)
    order = [(entry.step_time, entry.peak_allocated) for entry in everything.plans]
    assert order == sorted(order)


def test_counts_add_up(everything: SearchResult, predicted: dict[Plan, Prediction]) -> None:
    counts = everything.counts
    assert counts["evaluated"] == len(predicted)
    assert counts["out_of_memory"] == counts["tight"] == counts["slower"] == 0
    assert counts["enumerated"] == counts["illegal"] + len(predicted)
    assert sum(everything.illegal_reasons.values()) == counts["illegal"] > 0
    assert everything.optimality.startswith("proven: every legal plan")


def brute_force(
    predicted: dict[Plan, Prediction], memory: float, top: int
) -> tuple[Fit, list[float], float | None]:
    """The word of the best plans, their seconds, and those of a tight plan that is faster."""
    fitting = sorted(entry.step_time for entry in predicted.values() if room(entry) <= memory)
    tight = sorted(
        entry.step_time for entry in predicted.values() if peak(entry) <= memory < room(entry)
    )
    if not fitting:
        return Fit.TIGHT, tight[:top], None
    return Fit.FITS, fitting[:top], tight[0] if tight and tight[0] < fitting[0] else None


@pytest.mark.parametrize("top", [1, 7])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3, 0.5, 0.9])
def test_a_search_that_is_pruned_against_every_plan_simulated(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction], top: int, share: float
) -> None:
    """On devices that more and more of the plans fit; on the smallest two none does."""
    needed = sorted([*map(peak, predicted.values()), *map(room, predicted.values())])
    memory = needed[int(share * len(needed))] * (1.0 + 1e-6)
    result = search(with_memory(job, memory), space, top=top)
    word, fastest, tight = brute_force(predicted, memory, top)
    assert (word is Fit.TIGHT) == (share <= 0.02)
    assert {entry.fit for entry in result.plans} == {word}
    assert [entry.step_time for entry in result.plans] == pytest.approx(fastest, rel=1e-12)
    assert (result.faster_tight is None) == (tight is None)
    if result.faster_tight is not None:
        assert result.faster_tight.fit is Fit.TIGHT
        assert result.faster_tight.step_time == pytest.approx(tight, rel=1e-12)
    kinds = ("out_of_memory", "tight", "slower", "evaluated")
    assert sum(result.counts[kind] for kind in kinds) == len(predicted)
    fits = sum(room(item) <= memory for item in predicted.values())
    holds = sum(peak(item) <= memory for item in predicted.values())
    assert result.counts["evaluated"] <= fits
    assert result.counts["tight"] <= holds - fits
    assert result.counts["out_of_memory"] <= len(predicted) - holds


def test_most_plans_are_slower_by_their_bounds(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction]
) -> None:
    counts = search(with_memory(job, middle(predicted)), space, top=1).counts
    assert counts["slower"] > counts["evaluated"] + counts["tight"]
    assert counts["evaluated"] >= 1


def test_top_is_the_head_of_the_list(job: Job, space: PlanSpace, everything: SearchResult) -> None:
    assert search(job, space, top=5).plans == everything.plans[:5]


def test_rows_for_a_data_frame(everything: SearchResult) -> None:
    row, entry = everything.records()[0], everything.plans[0]
    assert (row["tp"], row["step_time_s"]) == (entry.plan.tp, entry.step_time)
    assert len(everything.records()) == len(everything.plans)


def test_progress_counts_every_plan(job: Job, space: PlanSpace) -> None:
    calls: list[tuple[int, int]] = []
    result = search(job, space, progress=lambda done, total: calls.append((done, total)))
    legal = result.counts["enumerated"] - result.counts["illegal"]
    assert calls[-1] == (legal, legal)
    assert [done for done, _ in calls] == sorted({done for done, _ in calls})


# --------------------------------------------------------------------------- memory


def test_only_plans_that_fit_are_ranked_and_the_others_are_counted(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction]
) -> None:
    limit = middle(predicted)
    result = search(with_memory(job, limit), space, top=10**6)
    fitting = {plan for plan, prediction in predicted.items() if room(prediction) <= limit}
    tight = {
        plan
        for plan, prediction in predicted.items()
        if peak(prediction) <= limit < room(prediction)
    }
    assert {entry.plan for entry in result.plans} == fitting
    assert {entry.fit for entry in result.plans} == {Fit.FITS}
    counts = result.counts
    assert counts["evaluated"] == len(fitting) > 0
    assert 0 < counts["tight"] <= len(tight)
    assert 0 < counts["out_of_memory"] <= len(predicted) - len(fitting) - len(tight)
    # what cannot fit and is slower than the best is not looked at further
    not_fitting = counts["tight"] + counts["out_of_memory"] + counts["slower"]
    assert not_fitting == len(predicted) - len(fitting)
    assert all(agree(entry, predicted[entry.plan]) for entry in result.plans)


@pytest.mark.parametrize("margin", [None, 0.0, 0.3])
def test_search_and_simulate_say_the_same_of_every_plan(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction], margin: float | None
) -> None:
    limit = middle(predicted)
    small = with_memory(job, limit)
    result = search(small, replace(space, memory_margin=margin), top=10**6)
    near = sorted(predicted, key=lambda plan: abs(peak(predicted[plan]) - limit))[:20]
    some = {*sorted(predicted, key=Plan.label)[::11], *near}
    alone = {plan: simulate(small, plan, memory_margin=margin) for plan in some}
    ranked = {entry.plan: entry for entry in result.plans}
    assert {item.fit for item in alone.values()} == set(Fit)
    for plan, item in alone.items():
        assert (plan in ranked) == (item.fit is Fit.FITS)
        if plan in ranked:
            assert ranked[plan].margin == item.margin.share


def test_a_tight_plan_that_is_faster_than_the_best_is_told(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction]
) -> None:
    """A device that the fastest plan of all just does not fit."""
    fastest = min(predicted.values(), key=lambda each: (each.step_time, peak(each)))
    result = search(with_memory(job, peak(fastest) * 1.0001), space)
    assert result.faster_tight is not None
    assert result.faster_tight.fit is Fit.TIGHT
    assert agree(result.faster_tight, fastest)
    assert result.faster_tight.step_time < result.plans[0].step_time
    assert search(with_memory(job, room(fastest) * 1.0001), space).faster_tight is None


def test_where_no_plan_fits_tight_ones_are_ranked(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction]
) -> None:
    least = min(map(peak, predicted.values()))
    result = search(with_memory(job, least * 1.0001), space)
    assert {entry.fit for entry in result.plans} == {Fit.TIGHT}
    assert result.counts["evaluated"] == 0
    assert len(result.plans) == result.counts["tight"] > 0
    assert result.faster_tight is None


def test_more_memory_is_never_slower(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction]
) -> None:
    least, most = (bound(map(room, predicted.values())) for bound in (min, max))
    bests = []
    for step in range(9):
        memory = (least + (most - least) * step / 8) * 1.0001
        bests.append(search(with_memory(job, memory), space).plans[0].step_time)
    assert bests == sorted(bests, reverse=True)
    assert bests[0] > bests[-1]


def test_nothing_fits(job: Job, space: PlanSpace, predicted: dict[Plan, Prediction]) -> None:
    least = min(map(peak, predicted.values()))
    with pytest.raises(NoFeasiblePlan, match=r"^nothing fits: the nearest plan, ") as caught:
        search(with_memory(job, 0.9 * least), space)
    label = re.match("nothing fits: the nearest plan, (.+), needs ", str(caught.value))
    assert label is not None
    nearest = [plan for plan in predicted if plan.label() == label[1]]
    assert [peak(predicted[plan]) for plan in nearest] == pytest.approx([least], rel=0.01)


# --------------------------------------------------------------------------- stopped


def stop_after(calls: int) -> tuple[list[int], Progress]:
    """A progress callback that is interrupted at its n-th call, and what it saw."""
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == calls:
            raise KeyboardInterrupt

    return seen, progress


def test_a_search_that_was_stopped_never_says_100_percent(job: Job, space: PlanSpace) -> None:
    few = replace(space, schedule=("1f1b",), cp=(1,), microbatch_size=(1,))
    listed = enumerate_plans(job, few)
    assert listed.families is not None
    work = BestShapes(job, listed.families, few, 1)
    work.run(None)
    work.stopped = "stopped by time limit"
    assert how_far(work, listed) == "stopped by time limit after 99 % of the legal plans"


@pytest.mark.parametrize("calls", [1, 4])
def test_an_interrupted_search_has_the_best_so_far(
    job: Job, space: PlanSpace, predicted: dict[Plan, Prediction], calls: int
) -> None:
    seen, progress = stop_after(calls)
    result = search(job, space, top=10**6, progress=progress)
    share = 100 * seen[-1] / len(predicted)
    words = f"interrupted after {share:.0f} % of the legal plans: best so far, at most "
    assert result.optimality.startswith(words)
    gap = float(result.optimality.removeprefix(words).partition(" %")[0]) / 100
    best = min(prediction.step_time for prediction in predicted.values())
    assert result.plans[0].step_time <= best * (1.0 + gap + 1e-3)
    assert len(result.plans) == result.counts["evaluated"] == seen[-1] < len(predicted)
    assert result.counts["out_of_memory"] == 0
    assert all(agree(entry, predicted[entry.plan]) for entry in result.plans)


def test_an_interruption_inside_a_shape_leaves_its_plans_out(
    job: Job, space: PlanSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def slow(*arguments: Any) -> ExactShape:
        if len(seen) == 2:
            raise KeyboardInterrupt
        return ExactShape(*arguments)

    monkeypatch.setattr(sys.modules["parsim.planner.equal.seen"], "ExactShape", slow)
    result = search(job, space, top=10**6, progress=lambda done, _: seen.append(done))
    assert result.counts["evaluated"] == seen[-1]
    assert result.counts["out_of_memory"] == 0


def test_a_time_limit_has_the_best_so_far(job: Job, space: PlanSpace) -> None:
    result = search(job, space, top=10**6, time_limit=0.0)
    assert re.fullmatch(
        r"stopped by time limit after \d+ % of the legal plans: best so far, at most \d+\.\d % "
        r"slower than the best of all",
        result.optimality,
    )
    assert result.plans


def test_a_time_limit_leaves_one_plan_to_describe(
    job: Job, space: PlanSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[Evaluation] = []

    def counted(whole: Evaluation) -> dict[str, float]:
        described.append(whole)
        return breakdown(whole)

    monkeypatch.setattr("parsim.planner.result.breakdown", counted)
    seen: list[int] = []
    with monkeypatch.context() as context:  # time is up once fifty plans are known
        clock = sys.modules["parsim.planner.stop"].time
        late = 2.0 + PATIENCE
        context.setattr(
            clock, "perf_counter", lambda: 0.0 if sum(seen[-1:]) < 50 else late + len(described)
        )
        result = search(
            job, space, top=10**6, time_limit=1.0, progress=lambda done, _: seen.append(done)
        )
    known = result.counts["evaluated"]
    assert known >= 50
    assert len(described) == len(result.plans) == 1
    assert result.optimality.endswith(f"; 1 of the {known} fastest are listed, for time was up")


def test_a_time_limit_that_is_not_reached_proves_the_same(job: Job, space: PlanSpace) -> None:
    limited, free = search(job, space, time_limit=inf), search(job, space)
    assert (limited.plans, limited.optimality) == (free.plans, free.optimality)


def test_a_search_stopped_before_anything_fits_does_not_say_that_nothing_does(
    job: Job,
    space: PlanSpace,
    predicted: dict[Plan, Prediction],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def loose(job: Any, table: Any, layers: Any, rows: Any, room: Any, cuts: Any) -> PlanBounds:
        bounds = plan_bounds(job, table, layers, rows, room._replace(most=inf), cuts)
        return bounds._replace(peak=0.5 * bounds.peak)

    monkeypatch.setattr(sys.modules["parsim.planner.equal.seen"], "plan_bounds", loose)
    least = min(map(peak, predicted.values()))
    with pytest.raises(NoFeasiblePlan) as caught:
        search(with_memory(job, 0.9 * least), space, time_limit=0.0)
    assert re.fullmatch(
        r"stopped by time limit after \d+ % of the legal plans, and none of those fits the "
        r"devices; give it more time, or a smaller space",
        str(caught.value),
    )


# --------------------------------------------------------------------------- naive schedules


@pytest.mark.parametrize("microbatches", [1, 2, 5, 16])
@pytest.mark.parametrize("zero_stage", [0, 2])
def test_the_compact_graph_of_naive_parallelism_is_exact(
    job: Job, microbatches: int, zero_stage: int
) -> None:
    plan = Plan(
        pp=2,
        dp_replicate=1 if zero_stage else 2,
        dp_shard=2 if zero_stage else 1,
        zero_stage=zero_stage,
        num_microbatches=microbatches,
        schedule="naive",
        microbatch_size=3,
        recompute=Recompute.SELECTIVE,
    )
    schedule = build_schedule("naive", pp=2, num_microbatches=microbatches)
    full, compact = (
        evaluate_step(replace(price_step(job, plan), compiled=(graph(schedule),)))
        for graph in (compile_schedule, compile_repeated)
    )
    (all_actions,), (once,) = full.step.compiled, compact.step.compiled
    assert once.num_actions * microbatches == all_actions.num_actions
    assert compact.step_time == pytest.approx(full.step_time, rel=1e-12)
    assert compact.bubble_fraction == pytest.approx(full.bubble_fraction, rel=1e-12)
    assert (compact.peak == full.peak).all()


def test_the_same_space_gives_the_same_result(job: Job, space: PlanSpace) -> None:
    first, two = search(job, space), search(job, replace(space))
    assert first.to_json() == two.to_json()


def test_what_is_sighted_on_the_way_is_proven(job: Job, space: PlanSpace) -> None:
    """The gap never promises more than the best of all keeps, and closes at the end."""
    seen: list[tuple[float, float]] = []
    result = search(job, space, top=3, sighted=lambda best, gap: seen.append((best, gap)))
    least = result.plans[0].step_time
    assert seen
    for best, gap in seen:
        assert best / (1.0 + gap) <= least * (1.0 + 1e-9) <= best * (1.0 + 2e-9)
    assert [best for best, _ in seen] == sorted((best for best, _ in seen), reverse=True)
