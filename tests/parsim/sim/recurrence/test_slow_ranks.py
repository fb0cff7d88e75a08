"""Listed slow ranks in tier B: their replica is a class whose kernels take as much longer."""

from __future__ import annotations

from typing import Any

import pytest

from parsim.cost.jitter import Jitter
from parsim.errors import InputError
from parsim.plan import Plan
from parsim.plan.strategies import DDP, Gossip, LocalSGD, ParameterServer, Strategy
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import evaluate
from tests.parsim.sim.data_parallel.cases import job, plan

TWICE = Jitter(slow_ranks=((3, 2.0),))
SHAPES: dict[str, dict[str, Any]] = {
    "replicas": {"dp_replicate": 16},
    "sharded": {"dp_shard": 16, "zero_stage": 1},
    "split": {"dp_replicate": 4, "tp": 4},
    "pipeline": {"dp_replicate": 4, "pp": 4, "num_microbatches": 8},
    "zero bubble": {"dp_replicate": 4, "pp": 4, "num_microbatches": 8, "schedule": "zb_h1"},
}


def shaped(name: str) -> Plan:
    return Plan(precision="fp16", **SHAPES[name])


@pytest.mark.parametrize("name", SHAPES)
def test_events_and_recurrence_agree(name: str) -> None:
    """The events of a step with a slow rank end when the recurrence says, or simulate refuses."""
    slow = simulate(job(), shaped(name), jitter=TWICE, tier="events")
    alone = simulate(job(), shaped(name), jitter=Jitter())
    assert alone.step_time < slow.step_time < 2.1 * alone.step_time


def test_all_wait_for_the_slow_replica() -> None:
    """Kernels that nothing hides take as much longer: a forward, a backward and the update."""
    usual, slow = (
        evaluate(job(), shaped("replicas"), slow_ranks=ranks) for ranks in ((), TWICE.slow_ranks)
    )
    costs = usual.step.costs
    compute = float((costs.forward + costs.backward).sum() + costs.optimizer[0, 0])
    assert slow.step.num_classes == 2
    assert slow.step.classes.count.tolist() == [15, 1]
    assert 0.8 * compute < slow.updated - usual.updated <= 1.001 * compute


def test_shards_of_every_pass_wait_for_it() -> None:
    """Tier B alone knows such steps; the slow rank holds back each action."""
    sharded = Plan(precision="fp16", dp_shard=16, zero_stage=3)
    slow, usual = (simulate(job(), sharded, jitter=jitter) for jitter in (TWICE, Jitter()))
    computed = usual.breakdown["forward"] + usual.breakdown["backward"]
    assert slow.step_time >= usual.step_time + 0.9 * computed


def test_a_rank_with_the_factor_one_changes_nothing() -> None:
    once = simulate(job(), shaped("pipeline"), jitter=Jitter(slow_ranks=((3, 1.0),)))
    assert once == simulate(job(), shaped("pipeline"))


@pytest.mark.parametrize("strategy", [ParameterServer(), Gossip(), LocalSGD(every=2)], ids=str)
def test_strategies_wait_for_it_too(strategy: Strategy) -> None:
    """No step is shorter than the slow worker's compute, since all wait for all in the end."""
    slow = simulate(job(), plan(strategy), jitter=Jitter(slow_ranks=((3, 20.0),)), tier="events")
    usual, ddp = simulate(job(), plan(strategy)), simulate(job(), plan(DDP))
    compute = ddp.breakdown["forward"] + ddp.breakdown["backward"]
    assert slow.step_time >= max(20.0 * compute, usual.step_time)


def test_plans_that_know_no_slow_ranks_are_refused() -> None:
    pipedream = Plan(pp=8, num_microbatches=8, schedule="pipedream", precision="fp16")
    with pytest.raises(InputError, match=r"jitter\.slow_ranks=\{3: 2\.0\} is not simulated with"):
        simulate(job(1), pipedream, jitter=TWICE)
    with pytest.raises(InputError, match="no rank of the plan"):
        simulate(job(), shaped("split"), jitter=Jitter(slow_ranks=((16, 2.0),)))
