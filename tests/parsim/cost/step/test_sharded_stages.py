"""Passes of plans with sharded parameters: what the collectives add, and what hides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.data.reduction import final_gather, num_buckets
from parsim.cost.job import Job
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.passes import LayerCost
from parsim.cost.software import software
from parsim.cost.step.costs import StepCosts
from parsim.cost.step.shard_wires import Wire
from parsim.cost.step.stages import layer_counts, stage_parameters
from parsim.cost.step.step import step_costs
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

MODEL = build_transformer(model_spec("megatron-22b"))
JOB = Job(
    model=MODEL,
    cluster=Cluster(system=load_catalog().system("dgx-a100"), num_nodes=4),
    software=software("generic"),
)


def costs(job: Job = JOB, **fields: object) -> StepCosts:
    plan = Plan(**{"dp_shard": 32, "num_microbatches": 2, **fields})  # type: ignore[arg-type]
    return step_costs(job, PlanTable.of([plan]))


def wires(zero_stage: int = 3) -> tuple[Wire, Wire]:
    table = PlanTable.of([Plan(dp_shard=32, zero_stage=zero_stage, num_microbatches=2)])
    data, counts = DataParallel.of(JOB, table), layer_counts(MODEL, (MODEL.num_layers,))
    parameters = stage_parameters(MODEL, table, counts)
    return Wire.of(data, data.gather, 1, counts, parameters, MODEL), Wire.of(
        data, data.scatter, 1, counts, parameters, MODEL
    )


@pytest.mark.parametrize("stage", [2, 3])
def test_hidden_collectives_are_between_none_and_all(stage: int) -> None:
    alone, beside = costs(zero_stage=1), costs(zero_stage=stage)
    inline = costs(zero_stage=stage, overlap_param_gather=False, overlap_grad_reduce=False)
    for name in ("forward", "backward"):
        low, seconds, high = (getattr(each, name)[0, 0] for each in (alone, beside, inline))
        assert low <= seconds <= high
        assert (low < seconds < high) == (stage == 3 or name == "backward")
    shown = beside.exposed_backward - alone.exposed_backward
    assert shown == pytest.approx(beside.backward - alone.backward)


def test_in_line_is_the_sum() -> None:
    gather, scatter = wires()
    alone = costs(zero_stage=1)
    inline = costs(zero_stage=3, overlap_param_gather=False, overlap_grad_reduce=False)
    assert inline.forward - alone.forward == pytest.approx(gather.whole)
    assert inline.backward - alone.backward == pytest.approx(gather.whole + scatter.whole)


def test_the_root_holds_what_is_in_no_layer() -> None:
    gather, scatter = wires()
    layers = gather.layers[0] * MODEL.num_layers
    assert 0.0 < gather.root[0, 0] < gather.layers[0, 0, 0]  # 0.3 billion parameters beside 0.45
    assert gather.root + layers == pytest.approx(gather.whole)
    assert not wires(2)[0].whole.any()
    assert (scatter.root > 0.0).all()


def test_a_mixed_table_prices_each_plan_as_alone() -> None:
    plans = [Plan(dp_shard=32, zero_stage=z, num_microbatches=2) for z in (1, 2, 3)]
    together = step_costs(JOB, PlanTable.of(plans))
    for index, plan in enumerate(plans):
        alone = step_costs(JOB, PlanTable.of([plan]))
        assert together.forward[:, index] == pytest.approx(alone.forward[:, 0], rel=1e-12)
        assert together.backward[:, index] == pytest.approx(alone.backward[:, 0], rel=1e-12)


def test_only_the_ends_of_a_pipeline_hold_a_root() -> None:
    sharded, alone = (costs(pp=4, dp_shard=8, zero_stage=z, num_microbatches=8) for z in (3, 1))
    added = (sharded.forward - alone.forward)[:, 0]
    assert added[1] == pytest.approx(added[2], rel=1e-12)
    assert added[0] > added[1]


def test_more_bandwidth_is_never_slower() -> None:
    system = JOB.cluster.system
    assert system.network is not None
    network = replace(system.network, nic_bandwidth=2.0 * system.network.nic_bandwidth)
    cluster = replace(JOB.cluster, system=replace(system, network=network, curves=()))
    fast = costs(replace(JOB, cluster=cluster), zero_stage=3)
    slow = costs(
        replace(JOB, cluster=replace(JOB.cluster, system=replace(system, curves=()))), zero_stage=3
    )
    assert (fast.forward <= slow.forward).all()
    assert (fast.backward <= slow.backward).all()


def test_the_final_gather_hides_no_longer_than_the_first_forwards_last() -> None:
    table = PlanTable.of([Plan(dp_shard=32, zero_stage=1, num_microbatches=2)])
    data, speed = DataParallel.of(JOB, table), np.array([0.8])
    parameters = np.full((1, 1), 22e9)
    count = num_buckets(data, parameters)
    whole = count * data.gather(parameters / count)
    long, short = (final_gather(data, parameters, whole * x, speed) for x in (10.0, 0.1))
    assert long[0, 0] == pytest.approx(0.2 * whole[0, 0], rel=0.05)  # what compute loses
    assert short[0, 0] == pytest.approx(0.9 * whole[0, 0], rel=0.01)


def always(ratio: float) -> tuple[tuple[float, float], ...]:
    """Points of one ratio from 1 us to 10 s, as dense as a calibration writes them."""
    return tuple((float(x), ratio) for x in np.geomspace(1e-6, 10.0, 94))


@pytest.mark.parametrize("stage", [2, 3])
def test_of_measured_waits_these_alone_are_exposed(stage: int) -> None:
    """A quarter of what the collectives take; copies and slower compute are the rest."""
    waits = {f"sharded_waited_{name}": always(0.25) for name in ("forward", "backward")}
    cluster = replace(JOB.cluster, system=replace(JOB.system, residuals=waits))
    inline: dict[str, object] = {
        "zero_stage": stage,
        "overlap_param_gather": False,
        "overlap_grad_reduce": False,
    }
    alone, before = costs(zero_stage=1), costs(JOB, **inline)
    measured_costs = costs(replace(JOB, cluster=cluster), **inline)
    for name in ("forward", "backward"):
        whole = getattr(before, name) - getattr(alone, name)
        waited = getattr(measured_costs, f"exposed_{name}") - getattr(alone, f"exposed_{name}")
        assert waited == pytest.approx(0.25 * whole, rel=1e-4)
    assert measured_costs.backward == pytest.approx(before.backward)
    assert measured_costs.forward == pytest.approx(before.forward)


@pytest.mark.parametrize("split", [False, True])
def test_a_split_layer_waits_as_long_as_was_measured(split: bool) -> None:
    prefix = "sequence_" if split else "split_"
    waits = {
        f"{prefix}block_waited_forward": always(0.5),
        f"{prefix}block_waited_backward": always(100.0),
    }
    table = PlanTable.of([Plan(tp=8, dp_shard=4, sequence_parallel=split), Plan(dp_shard=32)])

    def cost(job: Job) -> LayerCost:
        return LayerCoster(job, table).cost(MODEL.blocks[0])

    measured = replace(JOB.device, residuals=waits)
    system = replace(JOB.system, device=measured)
    before, measured_cost = (
        cost(JOB),
        cost(replace(JOB, cluster=replace(JOB.cluster, system=system))),
    )
    assert measured_cost.forward.exposed == pytest.approx(0.5 * before.forward.exposed)
    assert measured_cost.backward.exposed[0] == pytest.approx(
        before.backward.seconds[0]
    )  # no more than it
    assert measured_cost.backward.exposed[1] == 0.0
    for name in ("forward", "backward"):
        assert getattr(measured_cost, name).seconds == pytest.approx(getattr(before, name).seconds)


def test_gradients_that_add_up_whole_are_scattered_once_a_step() -> None:
    """Two micro-batches scatter once, so that each counts half."""
    whole = replace(JOB, software=replace(JOB.software, sums_whole=True))

    def backward(job: Job, microbatches: int) -> float:
        inline = costs(
            job,
            overlap_param_gather=False,
            overlap_grad_reduce=False,
            zero_stage=3,
            num_microbatches=microbatches,
        )
        return float(inline.backward[0, 0])

    _, scatter = wires()
    saved = backward(JOB, 2) - backward(whole, 2)
    assert saved == pytest.approx(scatter.whole[0, 0] / 2)
    assert backward(JOB, 1) == backward(whole, 1)
