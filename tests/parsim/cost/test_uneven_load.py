"""What an uneven load of experts adds to the upper half of a calibrated machine's bar."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.uneven_load import UNEVEN, uneven_load
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable
from parsim.sim import simulate

SPREAD = Plan(precision="fp32", num_microbatches=2, dp_replicate=2, ep=2)


def job_on(*, calibrated: bool, imbalance: float = 1.0, model: str = "mixtral-8x7b") -> Job:
    system = load_catalog().system("cpu")
    device = replace(system.device, calibrated=calibrated, spreads={"clock": 0.01})
    system = replace(system, device=device, calibrated=calibrated, devices_per_node=2)
    stack = replace(software("executor-cpu"), expert_imbalance=imbalance)
    spec = model_spec(model)
    return Job(
        model=build_transformer(spec), cluster=Cluster(system=system, num_nodes=1), software=stack
    )


def added(job: Job, plan: Plan = SPREAD) -> float:
    return uneven_load(job, plan, LayerTable.of(job, PlanTable.of([plan])))


def test_no_more_than_the_experts_share_of_the_layers() -> None:
    assert 0.05 < added(job_on(calibrated=True)) < log(UNEVEN)


@pytest.mark.parametrize(
    ("job", "plan"),
    [
        (job_on(calibrated=False), SPREAD),  # published runs have it in their errors
        (job_on(calibrated=True, imbalance=1.27), SPREAD),  # stated
        (job_on(calibrated=True), replace(SPREAD, ep=1)),
        (job_on(calibrated=True, model="gpt2"), replace(SPREAD, ep=1)),
    ],
)
def test_nothing_where_no_rank_waits_for_a_busier_one_or_it_is_known(job: Job, plan: Plan) -> None:
    assert added(job, plan) == 0.0


def test_the_upper_half_alone_is_wider_and_says_why() -> None:
    even = simulate(job_on(calibrated=True), SPREAD)
    stated = simulate(job_on(calibrated=True, imbalance=1.0 + 1e-9), SPREAD)
    halves = [
        (each.step_time / each.interval.low, each.interval.high / each.step_time)
        for each in (even, stated)
    ]
    assert halves[0][0] == pytest.approx(halves[1][0], rel=1e-3)
    assert halves[0][1] > 1.02 * halves[1][1]
    assert "even load of experts" in even.interval.basis
    assert "even load of experts" not in stated.interval.basis
