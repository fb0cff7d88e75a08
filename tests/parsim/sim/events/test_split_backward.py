"""A backward in two on shared links: what communicates in I, what in W, as tier B prices them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from parsim.arrays import Array
from parsim.cluster.topology import Graph, build_graph
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.plan import Plan, PlanTable
from parsim.plan.names import SPLIT, V_SHAPED
from parsim.schedule import Kind
from parsim.sim.contention.contention import simulate_contention
from parsim.sim.events.fabric import Fabric, SharedWire
from parsim.sim.events.ready_step import ReadyStep, ready_step
from parsim.sim.events.step_run import StepRun
from parsim.sim.simulate import simulate
from parsim.sim.step.exchanges import class_exchanges, exchanges
from parsim.sim.step.schedule_costs import action_seconds, exposed_seconds
from tests.parsim.sim.mixed_clusters import PLANS as MIXED
from tests.parsim.sim.mixed_clusters import fast_and_slow, job_on
from tests.parsim.sim.wide_links import wide

BASE = Plan(pp=4, tp=4, num_microbatches=8, overlap_p2p=True)
LATE = ("megatron-2021", "torchtitan")
"""A stack that splits every layer, and one whose first stage has no I (`splits_like_torch`)."""
PLANS = {
    "tp": BASE,
    "tp blocking": replace(BASE, overlap_p2p=False),
    "cp": replace(BASE, tp=2, cp=2),
    "zero 1": replace(BASE, tp=2, dp_shard=2, zero_stage=1),
    "zero 2": replace(BASE, tp=2, dp_shard=2, zero_stage=2),
    "zero 3": replace(BASE, tp=1, dp_shard=4, zero_stage=3),
    "zero 3 in line": replace(
        BASE, tp=1, dp_shard=4, zero_stage=3, overlap_grad_reduce=False, overlap_param_gather=False
    ),
}


def named(name: str, base: Plan) -> Plan:
    return replace(base, schedule=name, v=2 if name in V_SHAPED else 1)


def on(job: Job, stack: str) -> Job:
    return replace(job, software=software(stack))


def longest(job: Job, plan: Plan, graph: Graph) -> dict[tuple[str, int], float]:
    """The longest action of each kind and stage in tier C, seconds."""
    ready = ready_step(job, plan, graph, build_graph(job.cluster))
    fabric = Fabric([ready.sent], graph)
    step = StepRun(SharedWire(fabric, 0), ready.run)
    fabric.env.run(until=step.start())
    result: dict[tuple[str, int], float] = {}
    for span in step.spans:
        if span.stream == "compute" and span.stage >= 0:
            key = span.kind, span.stage
            result[key] = max(result.get(key, 0.0), span.duration)
    return result


@pytest.mark.parametrize("base", PLANS)
@pytest.mark.parametrize("stack", LATE)
@pytest.mark.parametrize("name", ["zb_h1", "zb_v", "zb_2p"])
def test_an_idle_network_takes_the_closed_form(job: Job, name: str, stack: str, base: str) -> None:
    assert name in SPLIT
    here, plan = on(job, stack), named(name, PLANS[base])
    contended = simulate_contention(here, plan, graph=wide(here))
    assert contended.step_time == pytest.approx(simulate(here, plan).step_time, rel=1e-9)


@pytest.mark.parametrize("base", PLANS)
@pytest.mark.parametrize("stack", LATE)
def test_exchanges_of_both_parts_are_those_of_the_whole(job: Job, stack: str, base: str) -> None:
    """In I as far as it is long enough, the rest in W; drawn so, sent so, priced so."""
    here, plan = on(job, stack), named("zb_h1", PLANS[base])
    layers = LayerTable.of(here, PlanTable.of([plan]))
    ready = ready_step(here, plan, wide(here))
    costs, parts = ready.step.costs, ready.run.classes[0].parts
    assert parts is not None
    inside, priced = exchanges(here, plan, layers, costs), exposed_seconds(costs)
    whole, inner, weight = (inside[kind] for kind in (Kind.B, Kind.I, Kind.W))
    assert inner + weight == pytest.approx(whole, rel=1e-12)
    assert (inner <= priced[Kind.I][:, 0] + 1e-15).all()
    assert (weight <= priced[Kind.W][:, 0] + 1e-15).all()
    drawn = class_exchanges(ready.step, 0)
    for kind in (Kind.F, Kind.I, Kind.W):
        assert (drawn[kind] == parts.inside[kind]).all()
    assert (parts.inside[Kind.W][1:] == 0.0).all() or stack != "megatron-2021"


def test_w_of_the_first_stage_sends_what_its_i_cannot(job: Job) -> None:
    """PyTorch's stage 0 has no I: on narrower NVLinks its W is longer, and no other stage's."""
    here, plan = on(job, "torchtitan"), named("zb_h1", BASE)
    graph = build_graph(here.cluster)
    usual = longest(here, plan, graph)
    slow = longest(here, plan, graph.scaled("nvlink", 0.25))
    assert ("I", 0) not in usual or usual["I", 0] == 0.0
    assert slow["W", 0] > 1.1 * usual["W", 0]
    for stage in (1, 2, 3):
        assert slow["W", stage] == pytest.approx(usual["W", stage], rel=1e-9)
        assert slow["I", stage] > 1.1 * usual["I", stage]


def shards(ready: ReadyStep) -> Mapping[Kind, Array]:
    """Idle seconds of shards beside the actions of the only class."""
    (run,) = ready.run.classes
    assert run.parts is not None
    return run.parts.shard


def test_shards_are_gathered_in_i_and_scattered_in_w(job: Job) -> None:
    """Late ranks meet in them (`in_step`); on slower interfaces both are late."""
    here, plan = on(job, "megatron-2021"), named("zb_h1", PLANS["zero 3"])
    ready = ready_step(here, plan, wide(here))
    shard, costs = shards(ready), ready.step.costs
    assert (shard[Kind.I] > 0.0).all()
    assert (shard[Kind.W] > 0.0).all()
    assert shard[Kind.I] + shard[Kind.W] == pytest.approx(shard[Kind.B], rel=1e-12)
    inputs = action_seconds(costs)[Kind.I][:, 0]
    assert (shard[Kind.I] == np.minimum(shard[Kind.F], inputs)).all()
    second = shards(ready_step(here, replace(plan, zero_stage=2), wide(here)))
    assert (second[Kind.I] == 0.0).all()
    assert (second[Kind.W] == second[Kind.B]).all()


@pytest.mark.parametrize("name", ["zb_h1", "zb_v"])
@pytest.mark.parametrize("stack", LATE)
def test_unlike_nodes_agree_too(name: str, stack: str) -> None:
    job, plan = job_on(fast_and_slow(), stack), MIXED[name]
    plan = replace(plan, tp=2, dp_replicate=2)
    contended = simulate_contention(job, plan, graph=wide(job))
    assert contended.step_time == pytest.approx(contended.alone, rel=1e-9)
