"""Search on mixed clusters: the best of all placements, and bounds that never exceed a step."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsim.arrays import Array
from parsim.cluster.groups import rank_groups
from parsim.cost.job import Job
from parsim.cost.step.layer_table import LayerTable
from parsim.errors import InputError, NoFeasiblePlan
from parsim.plan import Plan, PlanSpace, PlanTable, Recompute
from parsim.plan.rules.violation import violation
from parsim.planner import search
from parsim.planner.bounds import shared_bound
from parsim.planner.choice import ChoiceRequest, Limits, choose
from parsim.planner.mixed.best_first import _refine
from parsim.planner.mixed.by_bounds import best_by_bounds
from parsim.planner.mixed.candidates import Candidates
from parsim.planner.mixed.orders import orders
from parsim.planner.mixed.placements import Speeds, lower_bound, placements
from parsim.planner.mixed.roomy_first import roomy_first
from parsim.planner.space import enumerate_plans
from parsim.sim import simulate
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.recurrence.evaluate import evaluate
from parsim.sim.step.replica_classes import DevicesOfRanks
from parsim.training_run import TrainingGoal
from tests.parsim.sim.mixed_clusters import (
    INSIDE,
    cluster_of,
    fast_and_slow,
    job_on,
    narrower,
    node,
    slower,
)

SPACE = PlanSpace(
    global_batch_size=16,
    tp=(1, 2),
    pp=(1, 2, 4),
    cp=(1,),
    microbatch_size=(1, 2),
    v=(1, 2),
    schedule=("gpipe", "1f1b", "interleaved_1f1b"),
    zero_stage=(0, 1, 3),
    recompute=(Recompute.NONE, Recompute.FULL),
    common=Plan(overlap_p2p=True),
)


@pytest.fixture(scope="module")
def job() -> Job:
    return job_on(fast_and_slow())


def usable(job: Job) -> Array:
    return np.array([job.software.usable_memory(device) for device in job.cluster.devices])


def all_placed(job: Job, space: PlanSpace) -> list[Plan]:
    """Every placement of every legal plan."""
    table = enumerate_plans(job, space).table
    assert table is not None
    layers = [LayerTable.of(job.on(system), table) for system in job.cluster.systems]
    laid = {order: rank_groups(job.cluster, order) for order in orders(job.cluster)}
    return [
        plan
        for row in range(len(table))
        for plan, _ in placements(
            table.plan(row), laid, job.model, Speeds.of(layers, row), usable(job)
        )
        if violation(plan, job.model, job.cluster) is None
    ]


@pytest.mark.slow
def test_the_optimum_is_that_of_brute_force(job: Job) -> None:
    space = replace(SPACE, tp=(1,), zero_stage=(0, 1), microbatch_size=(1,), schedule=("1f1b",))
    result = search(job, space, top=5)
    steps = {}
    for plan in all_placed(job, space):
        prediction = simulate(job, plan)
        if prediction.fit is Fit.FITS:
            steps[plan] = prediction.step_time
    best = sorted(steps.values())
    ours = [entry.step_time for entry in result.plans]
    moved = [entry for entry in result.plans if entry.plan not in steps]
    assert [entry.step_time for entry in result.plans if entry.plan in steps][: 5 - len(moved)] == (
        best[: 5 - len(moved)]
    )
    assert ours[0] <= best[0]
    assert result.counts["evaluated"] < len(steps)
    assert "proven" in result.optimality


@pytest.mark.slow
def test_no_cut_and_no_batch_of_the_best_plan_is_faster() -> None:
    """Every cut of 8 layers in 2 to 7 and every division of 16 into 6 to 12 and the rest."""
    job = job_on(fast_and_slow(1, 1))
    space = replace(
        SPACE,
        tp=(1,),
        pp=(2,),
        microbatch_size=(1,),
        schedule=("1f1b",),
        zero_stage=(0,),
        recompute=(Recompute.NONE,),
    )
    result = search(job, space)
    base = Plan(pp=2, dp_replicate=2, num_microbatches=8, overlap_p2p=True)
    steps = []
    for order, axes, cut, count in product(
        (("fast", "slow"), ("slow", "fast")), (base.rank_order, INSIDE), range(2, 8), range(6, 13)
    ):
        plan = replace(
            base,
            node_order=order,
            rank_order=axes,
            stage_layers=(cut, 8 - cut),
            replica_microbatches=(count, 16 - count),
            num_microbatches=max(count, 16 - count),
        )
        steps.append(evaluate(job, plan, memory=False).step_time)
    assert result.plans[0].step_time == pytest.approx(min(steps), rel=1e-12)


TIMES = st.floats(1.0, 5.0)


@pytest.mark.slow
@settings(max_examples=4)
@given(device=TIMES, network=TIMES, nodes=st.sampled_from([(1, 1), (2, 2), (3, 1), (1, 3)]))
def test_bounds_never_exceed_a_step(device: float, network: float, nodes: tuple[int, int]) -> None:
    slow = narrower(slower(node("dgx-a100"), device), network)
    job = job_on(cluster_of(fast=(node("dgx-h100"), nodes[0]), slow=(slow, nodes[1])))
    listed = enumerate_plans(job, replace(SPACE, global_batch_size=24)).table
    assert listed is not None
    table = listed.take(np.arange(0, len(listed), 31))
    layers = [LayerTable.of(job.on(system), table) for system in job.cluster.systems]
    devices = [2 * count for count in nodes]
    shared = shared_bound(layers, table, job.model, devices)
    laid = {order: rank_groups(job.cluster, order) for order in orders(job.cluster)}
    for row in range(len(table)):
        speeds = Speeds.of(layers, row)
        for plan, slots in placements(table.plan(row), laid, job.model, speeds, usable(job)):
            if violation(plan, job.model, job.cluster) is None:
                step = evaluate(job, plan, memory=False).step_time * (1 + 1e-9)
                assert lower_bound(plan, job.model, speeds, slots) <= step
                assert shared[row] <= step


def test_stages_are_cut_by_speed(job: Job) -> None:
    space = replace(SPACE, pp=(4,), tp=(2,), schedule=("1f1b",), zero_stage=(0,))
    best = search(job, space).plans[0].plan
    assert best.stage_layers is not None
    assert best.node_order is not None
    cut = dict(zip(best.node_order, (best.stage_layers[:2], best.stage_layers[2:]), strict=True))
    assert sum(cut["fast"]) > sum(cut["slow"])


def test_saved_plans_read_back(job: Job) -> None:
    space = replace(SPACE, tp=(1,), schedule=("1f1b", "gpipe"))
    plans = [entry.plan for entry in search(job, space, top=5).plans]
    assert len(set(plans)) == 5
    assert len({plan.label() for plan in plans}) == 5
    assert all(plan.global_batch_size == 16 for plan in plans)
    for plan in plans:
        assert violation(plan, job.model, job.cluster) is None
        assert DevicesOfRanks.of(job.cluster, plan).pp == plan.pp


def test_equal_groups_find_what_one_kind_finds() -> None:
    from parsim.cluster.hardware import Cluster

    system = node("dgx-h100")
    space = replace(SPACE, schedule=("1f1b",))
    result = search(job_on(Cluster(system=system, num_nodes=4)), space).plans[0]
    two = search(job_on(cluster_of(a=(system, 2), b=(system, 2))), space).plans[0]
    assert two.step_time <= result.step_time


def test_when_nothing_fits_the_device_is_named() -> None:
    from parsim.cluster.reader import load_catalog

    small = replace(node("dgx-a100"), device=load_catalog().device("v100-sxm-16gb"))
    job = job_on(cluster_of(a=(node("dgx-h100"), 1), b=(small, 1)), layers=96)
    space = replace(SPACE, global_batch_size=4, common=Plan(precision="fp16"))
    with pytest.raises(NoFeasiblePlan, match="of nodes"):
        search(job, space)


def test_small_devices_get_what_they_can_hold() -> None:
    """T4s of 16 GB beside A100s of 80: equal parts do not fit them, nor do those by speed alone."""
    from parsim.cluster.reader import load_catalog

    small = replace(node("a100-pcie-node"), device=load_catalog().device("t4"))
    job = job_on(cluster_of(big=(node("dgx-a100"), 1), small=(small, 1)), layers=24)
    space = replace(SPACE, tp=(2,), pp=(2,), zero_stage=(0,), common=Plan(precision="fp16"))
    best = search(job, space).plans[0]
    assert best.plan.stage_layers is not None
    assert simulate(job, best.plan).fit is best.fit is Fit.FITS
    even = simulate(job, replace(best.plan, stage_layers=None))
    assert even.fit is Fit.TOO_LARGE


def test_the_peak_is_that_of_the_fullest_rank() -> None:
    """Layers by speed: A100s hold more than T4s, which are nearer to their limit."""
    from parsim.cluster.reader import load_catalog

    small = replace(node("a100-pcie-node"), device=load_catalog().device("t4"))
    job = job_on(cluster_of(big=(node("dgx-a100"), 1), small=(small, 1)), layers=8)
    space = replace(SPACE, tp=(2,), pp=(2,), common=Plan(precision="fp16"))
    result = search(job, space, top=20)
    predictions = [simulate(job, entry.plan) for entry in result.plans]
    peaks = [prediction.fullest.peak_allocated for prediction in predictions]
    assert [entry.peak_allocated for entry in result.plans] == pytest.approx(peaks, rel=1e-12)
    assert any(max(each.peak_allocated) > each.fullest.peak_allocated for each in predictions)


def test_a_tight_placement_that_is_faster_is_told(job: Job) -> None:
    """The margin is what the fastest placement leaves free, and a little more."""
    space = replace(SPACE, tp=(1,), pp=(2,), schedule=("1f1b",), memory_margin=0.0)
    fastest = search(job, space, top=1).plans[0]
    prediction = simulate(job, fastest.plan)
    left = 1.0 - max(prediction.peak_reserved) / min(usable(job))
    result = search(job, replace(space, memory_margin=left + 1e-3), top=3)
    assert {entry.fit for entry in result.plans} == {Fit.FITS}
    assert result.faster_tight is not None
    assert result.faster_tight.fit is Fit.TIGHT
    assert result.faster_tight.step_time <= fastest.step_time * (1.0 + 1e-9)
    assert result.counts["tight"] > 0
    nothing = search(job, replace(space, memory_margin=1.0 - 1e-6), top=3)
    assert {entry.fit for entry in nothing.plans} == {Fit.TIGHT}
    assert nothing.plans[0].step_time <= fastest.step_time * (1.0 + 1e-9)
    assert nothing.faster_tight is None


def test_a_time_limit_gives_the_best_so_far(job: Job) -> None:
    result = search(job, SPACE, time_limit=0.0)
    assert result.plans
    words = re.search(r"stopped by time limit .* at most ([\d.]+) % slower", result.optimality)
    assert words is not None
    best = search(job, SPACE, top=1).plans[0]
    assert result.plans[0].step_time <= best.step_time * (1.001 + float(words[1]) / 100)


@pytest.fixture(scope="module")
def little_memory(job: Job) -> PlanSpace:
    """A space in which only plans may fit that need few bytes, and none of the fastest."""
    table = enumerate_plans(job, SPACE).table
    assert table is not None
    work = Candidates(job, replace(SPACE, memory_margin=0.0), table)
    share = np.quantile(work.crowding(np.arange(len(table))), 0.2)
    return replace(SPACE, memory_cap=float(share * usable(job).min()), memory_margin=0.0)


def test_a_search_without_time_prices_a_plan_that_fits(
    job: Job, little_memory: PlanSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plans with the least bounds do not fit, and there is time to place a few."""
    monkeypatch.setattr("parsim.planner.mixed.by_bounds.PATIENCE", 0.0)
    result = search(job, little_memory, time_limit=0.0)
    assert {entry.fit for entry in result.plans} == {Fit.FITS}
    assert "stopped by time limit" in result.optimality


def test_plans_that_may_have_room_come_first(job: Job, little_memory: PlanSpace) -> None:
    """Roomy plans come in the order of their bounds, then the others from the roomiest on."""
    table = enumerate_plans(job, little_memory).table
    assert table is not None
    work = Candidates(job, little_memory, table)
    bounds, every = work.bounds(), np.arange(len(table))
    rows = list(roomy_first(work, np.argsort(bounds, kind="stable")))
    assert sorted(rows) == every.tolist()
    crowding = work.crowding(every)
    roomy, rest = rows[: (crowding <= 1.0).sum()], rows[(crowding <= 1.0).sum() :]
    assert 0 < len(roomy) < len(rows)
    assert (np.diff(bounds[roomy]) >= 0.0).all()
    assert crowding[roomy].max() <= 1.0 < crowding[rest].min()
    assert (np.diff(crowding[rest]) >= 0.0).all()


def test_moves_from_the_best_keep_to_the_time_limit(job: Job) -> None:
    space = replace(SPACE, tp=(1,), zero_stage=(0,), microbatch_size=(1,), schedule=("1f1b",))
    table = enumerate_plans(job, space).table
    assert table is not None
    work = Candidates(job, space, table)
    ran = best_by_bounds(work, 3, inf, None)
    before, priced = list(ran.best), len(ran.best)
    _refine(work, ran, 3, 0.0)
    assert ran.stopped == "stopped by time limit"
    assert ran.placements_done
    assert ran.best == before
    ran.stopped = ""
    _refine(work, ran, 3, inf)
    assert not ran.stopped
    assert len(ran.best) == priced
    assert ran.best[0].step <= before[0].step


def test_a_largest_bubble_and_what_became_of_all(job: Job) -> None:
    space = replace(SPACE, tp=(1,), pp=(2,), zero_stage=(0,), microbatch_size=(1,))
    every = search(job, space, top=100).plans
    limit = float(np.median([entry.bubble_fraction for entry in every]))
    fastest = next(entry for entry in every if entry.bubble_fraction <= limit)
    result = search(job, replace(space, max_bubble=limit), top=1)
    assert all(entry.bubble_fraction <= limit for entry in result.plans)
    assert result.plans[0].step_time <= fastest.step_time * (1.0 + 1e-9)
    counts = result.counts
    assert counts["idle"] > 0
    parts = ("out_of_memory", "tight", "slower", "idle", "evaluated")
    assert counts["placed"] == sum(counts[name] for name in parts)
    with pytest.raises(NoFeasiblePlan, match="no placement that fits idles less than max_bubble="):
        search(job, replace(space, max_bubble=1e-6))


def test_least_cost_and_energy_on_the_given_nodes(job: Job) -> None:
    """No other size is needed, and none but the given one can be asked for; fronts are refused."""
    space = replace(SPACE, tp=(1,), pp=(2,), zero_stage=(0,), microbatch_size=(1,), v=(1,))
    goal, nodes = TrainingGoal(tokens=1e9, usd_per_device_hour=2.0), job.cluster.num_nodes
    fastest = search(job, space, top=1).plans[0]
    for objective in ("time", "cost"):
        request = ChoiceRequest(nodes=(nodes,), objective=objective, top=2)
        result = choose(job, space, goal, request)
        assert result.choices[0].ranked.plan == fastest.plan
        assert result.optimality.startswith("proven: no other placement that fits")
    energy = choose(job, space, goal, ChoiceRequest(nodes=(nodes,), objective="energy", top=1))
    assert energy.choices
    late = ChoiceRequest(nodes=(nodes,), limits=Limits(deadline=1.0))
    with pytest.raises(NoFeasiblePlan, match="more than the deadline"):
        choose(job, space, goal, late)
    for request in (ChoiceRequest(nodes=(nodes + 1,)), ChoiceRequest(nodes=(nodes,), front=True)):
        with pytest.raises(InputError, match="needs nodes of one kind"):
            choose(job, space, goal, request)


def test_the_table_is_priced_by_the_rows_it_takes(job: Job) -> None:
    plan = Plan(pp=2, dp_replicate=4, num_microbatches=4)
    table = PlanTable.of([plan])
    layers = [LayerTable.of(job.on(system), table) for system in job.cluster.systems]
    assert evaluate(job, plan, layers=layers).step_time == evaluate(job, plan).step_time
