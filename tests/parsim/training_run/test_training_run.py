"""A whole run: steps and hours by hand, the published 34 days, energy against published figures."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from parsim.cluster.groups import mixed_cluster
from parsim.cluster.hardware import Cluster, NodeGroup
from parsim.cluster.prices import list_prices, price_band
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.training_run import Failures, TrainingGoal
from parsim.training_run.estimate import Estimate
from parsim.training_run.power import device_watts
from parsim.training_run.training_run import predicted_run, training_run
from tests.commands import GPT3

NEVER = Failures(device_mtbf=1e15, checkpoint_stall=0.0, stated=frozenset({"device_mtbf"}))
STEP = Estimate(9.0, 10.0, 12.0)


@pytest.fixture(scope="module")
def job() -> Job:
    return load_scenario(GPT3).job


def test_by_hand(job: Job) -> None:
    """10 s a step of 1,536 x 2,048 tokens: 318 steps for 1e9, 3,180 s of 1,024 devices."""
    goal = TrainingGoal(tokens=1e9, usd_per_device_hour=2.0, failures=NEVER)
    run = training_run(job, goal, batch=1536, step=STEP, computing=1.0)
    assert run is not None
    assert run.steps == math.ceil(1e9 / (1536 * 2048)) == 318
    assert run.duration == STEP.times(318)
    assert run.elapsed.value == pytest.approx(3180.0)
    assert run.device_hours.value == pytest.approx(3180 * 1024 / 3600)
    assert run.cost is not None
    assert run.cost.high == pytest.approx(2.0 * 318 * 12 * 1024 / 3600)
    # 400 W x 0.76 x 2.03 x 1.1 a device, for 3,180 s
    assert run.energy is not None
    assert run.energy.value == pytest.approx(400 * 0.76 * 2.03 * 1.1 * 1024 * 3180 / 3.6e6)


def test_without_tokens_there_is_no_run(job: Job) -> None:
    assert training_run(job, TrainingGoal(), batch=1536, step=STEP, computing=1.0) is None


def test_the_34_days_of_2021() -> None:
    """arXiv:2104.04473: GPT-3 on 300B tokens takes 34 days on 1,024 A100s with its software."""
    then = {
        "software": "megatron-2021",
        "plan.sequence_parallel": "false",
        "plan.recompute": "full",
    }
    scenario = load_scenario(GPT3, then)
    run = predicted_run(scenario.job, scenario.goal, simulate(scenario.job, scenario.fixed_plan()))
    assert run is not None
    days = run.duration.times(1 / 86400)
    assert days.low <= 34.0 <= days.high
    assert days.value == pytest.approx(34.0, rel=0.03)
    assert run.to_json()["duration_interval_s"] == run.duration.to_json()
    # 34 days of 1,024 devices: 835,584 device-hours, 509 MWh at the servers by TDP x 2.03 x 0.75
    assert run.energy is not None
    assert run.energy.low <= 835_584 * 0.4 * 2.03 * 0.75 * 1.1 <= run.energy.high


def test_gpt_3_on_v100_drew_330_watts() -> None:
    """arXiv:2104.10350, table 4: 330 W a V100 with its host, before PUE."""
    watts = device_watts(load_catalog().device("v100-sxm-32gb"), computing=0.8, pue=1.0)
    assert watts == pytest.approx(330.0, rel=0.2)


def test_a_device_that_waits_draws_less() -> None:
    h100 = load_catalog().device("h100-sxm-80gb")
    waits, works = device_watts(h100, 0.0, 1.1), device_watts(h100, 1.0, 1.1)
    assert waits is not None
    assert works is not None
    assert 0.0 < waits < works


def test_every_price_has_date_provider_and_source() -> None:
    known = load_catalog().devices
    for price in list_prices():
        assert price.device in known
        assert price.usd_per_device_hour > 0.0
        assert all((price.term, price.provider, price.region, price.date, price.source))


def test_a_band_holds_the_usual_price() -> None:
    band = price_band("a100-sxm-80gb")
    assert band is not None
    assert band.low < band.usual < band.high
    assert (band.low, band.high) == (2.1752, 4.0)
    assert price_band("cpu") is None


def test_a_mixed_cluster_has_the_mean_price_and_the_sum_of_the_watts(job: Job) -> None:
    catalog = load_catalog()
    kinds = ("dgx-a100", "dgx-h100")
    groups = [
        NodeGroup(name=name, system=catalog.system(name), num_nodes=nodes)
        for name, nodes in zip(kinds, (1, 3), strict=True)
    ]
    goal = TrainingGoal(tokens=1e9, failures=NEVER)

    def run_on(cluster: Cluster) -> tuple[float, float]:
        run = training_run(
            replace(job, cluster=cluster), goal, batch=1536, step=STEP, computing=0.9
        )
        assert run is not None
        assert run.cost is not None
        assert run.energy is not None
        return run.cost.value, run.energy.value

    both = run_on(mixed_cluster(groups))
    alone = [run_on(Cluster(system=g.system, num_nodes=g.num_nodes)) for g in groups]
    assert both[0] == pytest.approx(sum(cost for cost, _ in alone))
    assert both[1] == pytest.approx(sum(energy for _, energy in alone))


def test_an_unknown_price_or_power_is_said_and_not_made_up(job: Job) -> None:
    cpu = Cluster(system=load_catalog().system("cpu"), num_nodes=1)
    goal = TrainingGoal(tokens=1e6, failures=NEVER)
    run = training_run(replace(job, cluster=cpu), goal, batch=1536, step=STEP, computing=0.9)
    assert run is not None
    assert run.cost is None
    assert run.energy is None
    assert run.to_json()["cost_usd"] is None
