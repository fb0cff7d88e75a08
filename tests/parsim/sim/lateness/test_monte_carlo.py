"""Monte Carlo of a plan's steps: exact without jitter, the same for a seed, and what it names."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import parsim
from parsim.cost.jitter import Jitter
from parsim.cost.job import Job
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.scenario import Scenario
from parsim.sim import simulate
from parsim.sim.lateness.monte_carlo import mesh_position, ranks_of, simulate_jitter
from parsim.sim.lateness.pipelines import priced_plan
from parsim.sim.lateness.study import Study
from tests.commands import ROOT

SCENARIOS = ROOT / "scenarios"
STILL = Jitter(speed_spread=0.0, noise=0.0, hiccups=0.0)
SMALL = {"cluster.nodes": "8", "training.global_batch_size": "64"}


@pytest.fixture(scope="module")
def small() -> Scenario:
    """tp8 pp4 dp2 on 64 GPUs."""
    pairs = {**SMALL, "plan.pp": "4", "plan.dp": "2", "plan.v": "1", "plan.schedule": "1f1b"}
    return parsim.load_scenario(SCENARIOS / "gpt3-175b-dgx-a100.yaml", pairs)


def mean(scenario: Scenario, jitter: Jitter, steps: int = 40, seed: int = 0) -> float:
    jittered = simulate_jitter(scenario.job, scenario.fixed_plan(), jitter, steps=steps, seed=seed)
    return jittered.mean


@pytest.mark.parametrize(
    "name",
    ["gpt3-175b-dgx-a100", "gpt2-zero-bubble-cpu", "llama3-8b-dgx-h100", "gpt-6x8x64-hybrid"],
)
def test_without_jitter_every_step_is_the_prediction_less_its_straggler(name: str) -> None:
    scenario = parsim.load_scenario(SCENARIOS / f"{name}.yaml")
    plan = scenario.fixed_plan()
    jittered = simulate_jitter(scenario.job, plan, STILL, steps=3)
    predicted = simulate(scenario.job, plan)
    without = predicted.step_time - predicted.breakdown["straggler"]
    assert jittered.times == pytest.approx([without] * 3, rel=1e-12)
    assert jittered.base * (1 + jittered.straggler) == pytest.approx(predicted.step_time, rel=1e-12)
    assert jittered.losses == jittered.alone == {}


def test_the_catalogs_straggler_is_not_counted_twice(small: Scenario) -> None:
    """Doubling the allowance moves the prediction and none of the simulated steps."""
    job, plan = small.job, small.fixed_plan()
    system = replace(job.system, straggler_spread=2 * job.system.straggler_spread)
    doubled = Job(model=job.model, software=job.software,
                  cluster=replace(job.cluster, system=system))  # fmt: skip
    assert simulate(doubled, plan).step_time > simulate(job, plan).step_time
    first = simulate_jitter(job, plan, Jitter(), steps=20)
    second = simulate_jitter(doubled, plan, Jitter(), steps=20)
    assert first.times == second.times
    assert second.straggler == pytest.approx(2 * first.straggler)


def test_the_same_seed_gives_the_same_steps_and_another_seed_others(small: Scenario) -> None:
    job, plan = small.job, small.fixed_plan()
    first = simulate_jitter(job, plan, Jitter(), steps=30, seed=4)
    assert simulate_jitter(job, plan, Jitter(), steps=30, seed=4) == first
    assert simulate_jitter(job, plan, Jitter(), steps=30, seed=5).times != first.times


@pytest.mark.parametrize("source", ["speed_spread", "noise", "hiccups", "hiccup_length"])
def test_a_larger_spread_is_slower_on_average(small: Scenario, source: str) -> None:
    amounts = {"speed_spread": (0, 0.01, 0.03), "noise": (0, 0.01, 0.03),
               "hiccups": (0, 0.1, 1.0), "hiccup_length": (0, 0.01, 0.1)}[source]  # fmt: skip
    quiet = replace(STILL, hiccups=0.1) if source == "hiccup_length" else STILL
    means = [mean(small, replace(quiet, **{source: amount})) for amount in amounts]  # type: ignore[arg-type]
    assert means[0] < means[1] < means[2]


def test_a_slow_rank_is_seen_and_named(small: Scenario) -> None:
    jitter = Jitter(slow_ranks=((37, 1.2),))
    jittered = simulate_jitter(small.job, small.fixed_plan(), jitter, steps=40)
    assert jittered.slow_ranks == ("rank 37 (pp 2, dp 0, tp 5): 1.2x",)
    assert jittered.losses["slow_ranks"] > 0.05 * jittered.base
    assert jittered.losses["slow_ranks"] == max(jittered.losses.values())
    assert jittered.mean > mean(small, Jitter()) * 1.05


def test_one_slow_rank_of_16384_is_seen() -> None:
    scenario = parsim.load_scenario(SCENARIOS / "llama3.1-405b-dgx-h100.yaml")
    listed = replace(STILL, noise=0.01, slow_ranks=((5000, 1.2),))
    jittered = simulate_jitter(scenario.job, scenario.fixed_plan(), listed, steps=2)
    assert jittered.losses["slow_ranks"] > 0.05 * jittered.base
    assert jittered.slow_ranks[0].startswith("rank 5000 (pp 4, dp 113, tp 0)")


def test_every_rank_has_a_place_of_its_own() -> None:
    plan = Plan(tp=2, pp=3, dp_replicate=2, dp_shard=2, zero_stage=3)
    places = {mesh_position(plan, rank) for rank in range(plan.world_size)}
    assert places == set(product(range(3), range(4), range(2)))
    other = replace(plan, rank_order=("dp_replicate", "pp", "dp_shard", "cp", "tp"))
    assert mesh_position(other, 4) == (1, 0, 0)
    assert mesh_position(plan, 4) == (0, 2, 0)


def study(scenario: Scenario, jitter: Jitter, steps: int) -> Study:
    plan = scenario.fixed_plan()
    pipelines = priced_plan(scenario.job, plan).pipelines
    return Study(pipelines=pipelines, ranks=ranks_of(plan, jitter), steps=steps, seed=0)


def test_blocks_follow_one_another(small: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    eight_steps = 16  # of 2 replicas
    monkeypatch.setattr("parsim.sim.lateness.study.BLOCK_COLUMNS", eight_steps)
    seen: list[tuple[int, int]] = []
    whole = study(small, Jitter(), 20)
    times = whole.times(Jitter(), progress=lambda done, total: seen.append((done, total)))
    assert len(times) == 20
    assert len(set(times.tolist())) == 20
    assert seen == [(8, 20), (16, 20), (20, 20)]
    assert whole.times(Jitter(), first=9).tolist() == times[:16].tolist()


def test_one_cluster_varies_less_than_many(small: Scenario) -> None:
    job, plan = small.job, small.fixed_plan()
    many = simulate_jitter(job, plan, Jitter(clusters=100), steps=200)
    first = simulate_jitter(job, plan, Jitter(clusters=1), steps=200)
    assert first.within == pytest.approx(first.std, rel=0.01)
    assert many.within < 0.5 * many.std
    assert first.std < 0.5 * many.std


def test_single_members_and_single_steps_work(small: Scenario) -> None:
    scenario = parsim.load_scenario(
        SCENARIOS / "gpt3-175b-dgx-a100.yaml",
        {**SMALL, "plan.tp": "1", "plan.pp": "16", "plan.dp": "4", "plan.v": "1",
         "plan.schedule": "1f1b", "plan.sequence_parallel": "false"},
    )  # fmt: skip
    jittered = simulate_jitter(scenario.job, scenario.fixed_plan(), Jitter(), steps=1)
    assert jittered.times[0] > jittered.base
    assert jittered.within == 0.0


def test_quantiles_and_slowdown_fit_the_steps(small: Scenario) -> None:
    jittered = simulate_jitter(small.job, small.fixed_plan(), Jitter(), steps=100)
    text = jittered.to_json()
    assert text["mean_s"] == pytest.approx(np.mean(jittered.times))
    assert text["p50_s"] <= text["p99_s"] <= max(jittered.times)
    assert text["slowdown_mean"] == pytest.approx(text["mean_s"] / text["without_jitter_s"])
    assert set(text["loss_s"]) == set(text["loss_alone_s"]) == {"speed_spread", "noise", "hiccups"}
    assert len(text["assumptions"]) == 4


@pytest.mark.parametrize(
    ("jitter", "steps", "message"),
    [
        (Jitter(slow_ranks=((64, 1.2),)), 3, "slow_ranks=64 is no rank of the plan; .* 0 to 63"),
        (Jitter(slow_ranks=((6, 0.0),)), 3, "factor 0.0; it must be above 0"),
        (Jitter(noise=-0.1), 3, "noise=-0.1 must be finite and at least 0"),
        (Jitter(), 0, r"jitter steps=0 \(--jitter-steps\); allowed: 1 to"),
        (Jitter(), 10**7, r"more than 10,000,000,000 draws; allowed for this plan: 1 to \d"),
    ],
)
def test_what_cannot_be_is_refused(
    small: Scenario, jitter: Jitter, steps: int, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        simulate_jitter(small.job, small.fixed_plan(), jitter, steps=steps)
