"""Stages with tensor-parallel degrees of their own: the search against all that can be listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.legal import illegal
from parsim.cost.software import software
from parsim.cost.step.cuts import single_layers
from parsim.errors import PlanError
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.rules.violation import check_plan
from parsim.plan.stages import Stage
from parsim.planner.search import search
from parsim.planner.unequal import judged
from parsim.planner.unequal.candidates import Family
from parsim.sim.confidence.memory_fit import Fit
from parsim.sim.simulate import simulate

DEVICES, LAYERS = 3, 5
SPACE = PlanSpace(
    global_batch_size=2,
    microbatch_size=(1,),
    schedule=("1f1b",),
    recompute=(Recompute.NONE,),
    sequence_parallel=(False,),
    unequal_stages=True,
    common=Plan(precision="bf16"),
)


@pytest.fixture(scope="module")
def job() -> Job:
    """A GPT of 5 wide layers whose head is untied, on three A100s of one node."""
    spec = replace(
        model_spec("gpt2"),
        num_layers=LAYERS,
        hidden_size=4096,
        num_attention_heads=32,
        num_key_value_heads=32,
        head_dim=128,
        ffn_hidden_size=16384,
        tied_embeddings=False,
    )
    system = replace(load_catalog().system("dgx-a100"), devices_per_node=DEVICES)
    return Job(
        model=build_transformer(spec),
        cluster=Cluster(system=system, num_nodes=1),
        software=software("generic"),
    )


def by_hand(job: Job, count: int) -> Iterator[Plan]:
    """Every legal division of the devices, with the cut that is best by the partitioner's formula.

    Stages of one degree are there with every degree, as those of several.
    """
    parts = [(r, tp) for r, tp in product(range(1, DEVICES + 1), (1, 2)) if r * tp <= DEVICES]
    for stages in (2, 3):
        for division in product(parts, repeat=stages):
            if sum(r * tp for r, tp in division) == DEVICES and all(
                count % r == 0 for r, _ in division
            ):
                cuts = [
                    tuple(end - first for first, end in pairwise((0, *ends, LAYERS)))
                    for ends in combinations(range(1, LAYERS), stages - 1)
                ]
                plan = with_stages(
                    division, min(cuts, key=lambda cut: slowest(job, division, cut, count)), count
                )
                if illegal(job, plan) is None:
                    yield plan


def with_stages(division: Sequence[tuple[int, int]], cut: Sequence[int], count: int) -> Plan:
    """The plan of a division."""
    stages = tuple(
        Stage(layers=layers, replicas=r, tp=tp)
        for (r, tp), layers in zip(division, cut, strict=True)
    )
    return replace(SPACE.common, pp=len(cut), stages=stages, num_microbatches=count)


def slowest(job: Job, division: Sequence[tuple[int, int]], cut: Sequence[int], count: int) -> float:
    """(C + 2 (r - 1) / r W / B) / r of the slowest stage, or of the slowest border."""
    rate, seconds, first = job.system.intra.bandwidth * job.system.intra.efficiency, [], 0
    for stage, ((r, tp), layers) in enumerate(zip(division, cut, strict=True)):
        each = single_layers(job, replace(SPACE.common, tp=tp, num_microbatches=count))
        inside = slice(first, first + layers)
        # gradients of fp32, reduced once in a step
        sent = 4.0 * min(DEVICES // tp / count, 1.0) * each.parameters[inside].sum()
        seconds.append((each.seconds[inside].sum() + 2.0 * (r - 1) / r * sent / rate) / r)
        if stage:
            ahead, width = division[stage - 1]
            copies = -(-tp // width) + -(-width // tp)
            seconds.append(copies * each.sent[first - 1] / rate / min(r, ahead))
        first += layers
    return float(max(seconds))


@pytest.mark.parametrize("count", [2, 4])
def test_search_finds_the_best_of_all_divisions(job: Job, count: int) -> None:
    space = replace(SPACE, global_batch_size=count)
    result = search(job, space, top=3)
    every = [simulate(job, plan) for plan in by_hand(job, count)]
    steps = sorted(prediction.step_time for prediction in every if prediction.fit == Fit.FITS)
    best = result.plans[0]
    assert best.step_time == pytest.approx(steps[0], rel=1e-12)
    assert {*best.plan.stage_tp} == {1, 2}, "stages of several degrees are the fastest here"
    equal = search(job, replace(space, unequal_stages=False), top=1).plans[0]
    # equal stages are cut by seconds too, with the head on a stage by itself where that is better
    assert best.step_time < 0.95 * equal.step_time
    together = sorted([*steps, *(row.step_time for row in result.plans if row.plan.stages is None)])
    assert [row.step_time for row in result.plans] == pytest.approx(together[:3], rel=1e-12)


def test_what_became_of_every_division_is_told(job: Job) -> None:
    counts = (result := search(job, replace(SPACE, global_batch_size=4), top=1)).counts
    outcomes = ("illegal", "unfit", "slower", "evaluated", "left")
    assert counts["unequal_plans"] == sum(counts[f"unequal_{name}"] for name in outcomes)
    assert counts["unequal_left"] == 0
    assert counts["unequal_slower"] > 0
    assert "the others are slower by a lower bound or do not fit" in result.optimality


def test_divisions_that_were_not_looked_at_are_told(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "MOST_SIMULATED", 1)
    result = search(job, SPACE, top=10)
    assert result.counts["unequal_evaluated"] == 1
    assert result.counts["unequal_left"] > 0
    assert "of which nothing is proven" in result.optimality


def test_one_degree_of_the_space_is_that_of_all_stages(job: Job) -> None:
    plans = search(job, replace(SPACE, tp=(1,)), top=10).plans
    assert any(row.plan.stages for row in plans)
    assert {tp for row in plans for tp in row.plan.stage_tp} == {1}


def test_limits_of_the_space_hold_for_unequal_stages(job: Job) -> None:
    best = search(job, SPACE, top=1).plans[0]
    cap = 0.99 * best.peak_allocated
    capped = search(job, replace(SPACE, memory_cap=cap), top=3).plans
    assert all(row.peak_allocated <= cap for row in capped)
    many = replace(SPACE, global_batch_size=8)
    most = 0.999 * max(row.bubble_fraction for row in search(job, many, top=8).plans)
    busy = search(job, replace(many, max_bubble=most), top=8).plans
    assert all(row.bubble_fraction <= most for row in busy)
    assert any(row.plan.stages for row in busy)


@pytest.mark.parametrize("stack", ["generic", "megatron-2021", "torchtitan"])
def test_bounds_are_below_every_step(job: Job, stack: str) -> None:
    """Every division that is cut, on devices of two nodes, where host or device is slower."""
    nodes = replace(job.cluster, system=replace(job.system, devices_per_node=2), num_nodes=2)
    nodes = replace(
        nodes, system=replace(nodes.system, network=load_catalog().system("dgx-a100").network)
    )
    there = replace(job, cluster=nodes, software=software(stack))
    small = replace(SPACE.common, dp_replicate=4, num_microbatches=2)
    family = Family.of(there, small, (1, 2))
    assert len(family.divisions.some) > 4
    for division in family.divisions.some:
        bound, least, plan = family.candidate(division)
        if plan is not None:
            prediction = simulate(there, plan)
            step, peak = prediction.step_time, max(prediction.peak_allocated)
            assert 0.3 * peak < least <= peak
            assert family.bound(division) <= bound * (1.0 + 1e-9) <= step * (1.0 + 2e-9)
            assert step < 2.0 * bound


def test_ranks_of_a_stage_stay_inside_a_node(job: Job) -> None:
    stages = (Stage(layers=2, replicas=1), Stage(layers=3, replicas=1, tp=2), Stage(layers=0))
    plan = Plan(pp=3, stages=stages, num_microbatches=2)
    system = replace(
        job.system, devices_per_node=2, network=load_catalog().system("dgx-a100").network
    )
    cluster = Cluster(system=system, num_nodes=2)
    with pytest.raises(PlanError, match=r"stages\[1\]\.tp=2: its ranks 1 to 2 lie across nodes"):
        check_plan(plan, job.model, cluster)
    wide_first = (stages[1], stages[0], stages[2])
    check_plan(replace(plan, tp=1, stages=wide_first), job.model, cluster)
