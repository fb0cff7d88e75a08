"""Reasons: what a wish costs sums up, what forbids it is told, what changes the winner."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.model.transformer import TransformerSpec, build_transformer
from parsim.plan import Plan, PlanSpace, Recompute
from parsim.plan.space import Between
from parsim.planner.search import search
from parsim.planner.twins import fold_twins, twin_words
from parsim.planner.why import read_pins, reasons, sensitivity
from parsim.planner.why.pins import pin_words, pinned
from parsim.planner.why.reasons import step_parts
from parsim.planner.why.sensitivity import bandwidth_words
from parsim.planner.why.surroundings import surroundings
from parsim.scenario import load_scenario
from parsim.sim import simulate
from tests.commands import GPT3
from tests.parsim.planner.conftest import small_gpt, with_memory


@pytest.fixture(scope="module")
def narrow(space: PlanSpace) -> PlanSpace:
    return replace(space, schedule=("1f1b",), cp=(1,), microbatch_size=(1, 2))


@pytest.mark.parametrize("wish", ["tp=4", "pp=2,recompute=full", "zero_stage=3,dp=2"])
def test_what_a_wish_costs(job: Job, narrow: PlanSpace, wish: str) -> None:
    pins = read_pins(wish)
    told = reasons(job, narrow, pins)
    assert told.wished is not None
    wished = search(job, pinned(narrow, pins), top=1).plans[0]
    assert (told.wished.plan, told.best.step_time) == (
        wished.plan,
        search(job, narrow, top=1).plans[0].step_time,
    )
    assert sum(told.parts.values()) == pytest.approx(told.best.step_time)
    assert sum(told.wished_parts.values()) == pytest.approx(told.wished.step_time)
    assert pin_words(pins) == wish.replace(",", ", ")


@pytest.mark.parametrize(
    ("plan", "names"),
    [
        (Plan(tp=4, sequence_parallel=True, num_microbatches=8), {"exposed: tensor"}),
        (
            Plan(tp=2, dp_shard=2, zero_stage=3, num_microbatches=4),
            {"exposed: tensor", "exposed: data-parallel shards"},
        ),
        (Plan(dp_replicate=4, num_microbatches=2), set()),
    ],
)
def test_exposed_communication_by_group(job: Job, plan: Plan, names: set[str]) -> None:
    parts = step_parts(job, replace(plan, precision="fp16"))
    predicted = simulate(job, replace(plan, precision="fp16"))
    exposed = {name: seconds for name, seconds in parts.items() if name.startswith("exposed")}
    assert set(exposed) == names
    whole = predicted.breakdown["exposed_communication"]
    assert sum(exposed.values()) == pytest.approx(whole, abs=1e-12)


def test_a_rule_that_forbids(job: Job, narrow: PlanSpace) -> None:
    told = reasons(job, replace(narrow, tp=(1, 2)), read_pins("tp=3"))
    assert told.wished is None
    assert told.refusal.startswith("tp=3 does not divide num_attention_heads=4; allowed: 1, 2, 4")
    assert told.ruled_out == "tp=3"
    assert reasons(job, narrow, read_pins("dp=3")).wished is None


def test_memory_that_forbids(job: Job, narrow: PlanSpace) -> None:
    most = max(simulate(job, Plan(dp_replicate=4, num_microbatches=2)).peak_allocated)
    small = with_memory(job, 0.9 * most)
    told = reasons(small, narrow, read_pins("tp=1,pp=1,zero_stage=0,recompute=none"))
    assert told.wished is None
    assert "nothing fits: the nearest plan" in told.refusal
    assert "least change that fits" in told.refusal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp", "'tp' must be FIELD=VALUE"),
        ("strategy=gossip", "strategy is no axis that a wish may name; parsim guide lays all"),
        ("tensor=2", "unknown field 'tensor' .did you mean 'tp'..; nearest of"),
        ("tp=2,tp=4", "tp=2 and tp=4 contradict one another"),
        ("tp=x", "tp=x must be a whole number"),
        ("pp=0", "pp=0 must be at least 1"),
        ("rank_order=pp-tp", "must name each of pp, dp_replicate, dp_shard, cp, tp once"),
        ("recompute_modules=mlp+core", "recompute_modules=core is unknown"),
        ("recompute=some", "recompute=some is unknown; allowed: none, selective, full"),
    ],
)
def test_wishes_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_pins(text)


@pytest.mark.parametrize(("wish", "schedule"), [("schedule=zb_v", "zb_v"), ("v=3", "interleaved")])
def test_a_wish_of_a_schedule_or_of_chunks_is_one_of_pipelines(
    job: Job, narrow: PlanSpace, wish: str, schedule: str
) -> None:
    """Without a pipeline every schedule is the same."""
    alone = replace(narrow, pp=(1,), schedule=("1f1b", "interleaved_1f1b"))
    told = reasons(job, alone, read_pins(wish))
    assert told.best.plan.pp == 1
    assert told.wished is not None
    assert told.wished.plan.pp > 1
    assert told.wished.plan.schedule.startswith(schedule)
    ranges = (Between(most=2), Between(most=1), Between(least=4), (1, 2), None)
    pins = read_pins("schedule=gpipe")
    allowed = [pinned(replace(narrow, pp=some), pins).pp for some in ranges]
    wide = Between(least=2)
    assert allowed == [Between(least=2, most=2), wide, Between(least=4), (2,), wide]
    assert pinned(narrow, read_pins("v=1")).pp == narrow.pp


def test_values_of_a_wish() -> None:
    assert read_pins("recompute=FULL, sequence_parallel=true,schedule=gpipe") == {
        "recompute": Recompute.FULL,
        "sequence_parallel": True,
        "schedule": "gpipe",
    }


@pytest.fixture(scope="module")
def spec() -> TransformerSpec:
    """The model of the job, of longer sequences."""
    return small_gpt(1024)


def test_changes_and_the_break_even(job: Job, narrow: PlanSpace, spec: TransformerSpec) -> None:
    two = replace(job, model=build_transformer(spec), cluster=replace(job.cluster, num_nodes=2))
    told = sensitivity(two, spec, narrow)
    by_name = {change.what: change for change in told.changes}
    assert by_name["network -20 %"].step_time >= told.best.step_time
    assert by_name["network +20 %"].step_time <= told.best.step_time
    assert "sequence of 768" in by_name
    assert any(name.startswith("batch of ") for name in by_name)
    assert any(re.fullmatch(r"\d+ nodes? \([+-]\d+ %\)", name) for name in by_name)
    even = told.break_even
    assert even is not None
    assert even.other_step_time >= told.best.step_time
    assert even.other.label() in bandwidth_words(told)
    if even.bandwidth is not None:
        network = two.system.network
        assert network is not None
        system = replace(two.system, network=replace(network, nic_bandwidth=even.bandwidth))
        there = replace(two, cluster=replace(two.cluster, system=system))
        steps = [simulate(there, plan).step_time for plan in (told.best.plan, even.other)]
        assert steps[0] == pytest.approx(steps[1], rel=1e-4)


def test_batch_and_nodes_go_to_the_nearest_that_the_best_plan_fills(spec: TransformerSpec) -> None:
    """128 nodes, tp 8 pp 8 dp 16, 1,536 sequences: rounds of 8 micro-batches a replica."""
    gpt3 = load_scenario(GPT3)
    best = gpt3.fixed_plan()
    space = PlanSpace(global_batch_size=1536)
    worlds = {what: (job, there) for what, job, there in surroundings(gpt3.job, spec, space, best)}
    names = [what for what in worlds if what.startswith(("batch", "9", "1"))]
    assert names == [
        "batch of 1280 (-17 %)",
        "96 nodes (-25 %)",
        "batch of 1792 (+17 %)",
        "192 nodes (+50 %)",
    ]
    job, there = worlds["batch of 1280 (-17 %)"]
    assert (job.global_batch_size, there.global_batch_size) == (1280, 1280)
    assert worlds["96 nodes (-25 %)"][0].cluster.num_nodes == 96
    alone = surroundings(gpt3.job, spec, replace(space, global_batch_size=128), best)
    assert not any(what.startswith("batch of 0") for what, _, _ in alone)


def test_a_twin_is_told_by_all_that_it_has_differently() -> None:
    better = "tp2 pp2 dp1 cp2 mb1 m32 interleaved_1f1b v8 zero1 sp recompute-selective"
    for twin, words in {
        better.replace("v8", "v5"): "v5",
        better.replace("v8 zero1", "v5"): "v5 without zero1",
        better.replace("zero1 sp", "zero3"): "zero3 without sp",
        better.replace(" sp", ""): "without sp",
        better.replace("interleaved_1f1b v8", "zb_h1"): "zb_h1",
        better.replace("selective", "full"): "recompute-full",
    }.items():
        assert twin_words(better, twin) == words


def test_twins_are_folded(job: Job, narrow: PlanSpace) -> None:
    plans = search(job, narrow, top=40).plans
    folded = fold_twins(plans)
    assert sum(1 + len(twins) for _, _, twins in folded) == len(plans)
    assert any(twins for _, _, twins in folded)
    for index, better, twins in folded:
        assert plans[index] is better
        for twin in twins:
            assert twin.step_time >= better.step_time
            assert twin.peak_allocated >= better.peak_allocated
            assert twin.plan.tp == better.plan.tp
            assert twin_words(better.plan.label(), twin.plan.label())
