"""What physics says of strategies, of networks of convolutions, and of whole runs.

The same as `test_physics.py` says of transformers: a faster part never makes a step slower, less
work never takes longer, and no part of time, bytes or money is negative.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.software import software
from parsim.model.graph.build import build_graph
from parsim.model.graph.catalog import network
from parsim.plan import Plan, Recompute
from parsim.plan.strategies import (
    AsynchronousGossip,
    AsynchronousServer,
    DiLoCo,
    Gossip,
    LocalSGD,
    ParameterServer,
    SingleProcess,
    Strategy,
)
from parsim.sim import simulate
from parsim.training_run import Failures, TrainingGoal
from parsim.training_run.estimate import Estimate
from parsim.training_run.training_run import TrainingRun, training_run
from tests.parsim.sim.data_parallel.cases import job, plan, predicted
from tests.parsim.sim.random_jobs import faster, on

SMALL = 1e-3
"""By how much rounding up to whole tiles may turn a gain into a loss."""

ROUNDING = 1e-12

STRATEGIES: list[tuple[Strategy, int]] = [
    (SingleProcess(), 1),
    (ParameterServer(servers=2), 2),
    (ParameterServer(on="devices", servers=3, backup_workers=1), 2),
    (AsynchronousServer(staleness=2, updates=20), 2),
    (Gossip(topology="exponential"), 2),
    (AsynchronousGossip(updates=20), 2),
    (LocalSGD(every=4, node_every=2, after=2), 2),
    (DiLoCo(every=5), 2),
]


@pytest.mark.parametrize(("strategy", "nodes"), STRATEGIES, ids=lambda case: str(case))
def test_no_faster_part_makes_a_strategy_slower(strategy: Strategy, nodes: int) -> None:
    chosen = plan(strategy, 8 * nodes, num_microbatches=2)
    before = simulate(job(nodes), chosen)
    assert min(before.breakdown.values()) >= -ROUNDING * before.step_time
    assert sum(before.breakdown.values()) == pytest.approx(before.step_time)
    for name, system in faster(job(nodes).system, 4.0):
        after = simulate(on(job(nodes), system), chosen)
        assert after.step_time <= before.step_time * (1.0 + SMALL), name
        assert after.peak_allocated == before.peak_allocated


LESS: dict[str, tuple[Strategy, ...]] = {
    "compression": tuple(ParameterServer(servers=2, compression=c) for c in (1.0, 0.5, 0.01)),
    # packing takes time too: what is packed is compared with what is packed into less
    "compression, one by one": tuple(
        AsynchronousServer(servers=2, compression=c, updates=20) for c in (0.5, 0.1, 0.01)
    ),
    "more servers": tuple(ParameterServer(servers=count) for count in (1, 2)),
    # every step is DDP, which sends beside the backward; averages are sent behind it
    "averages of weights": tuple(LocalSGD(every=every) for every in (2, 8, 64)),
    "outer steps": tuple(DiLoCo(every=every) for every in (1, 10, 500)),
}


@pytest.mark.parametrize("name", LESS)
def test_what_is_sent_less_takes_no_longer(name: str) -> None:
    times = [predicted(strategy).step_time for strategy in LESS[name]]
    assert all(after <= before * (1.0 + ROUNDING) for before, after in pairwise(times))
    assert times[-1] < times[0]


def images(name: str, size: int | None = None) -> Job:
    return Job(
        model=build_graph(network(name, size)),
        cluster=Cluster(system=load_catalog().system("dgx-1v"), num_nodes=1),
        software=software("pytorch-ddp"),
    )


NETWORKS = {
    "resnet50": Plan(dp_replicate=8, microbatch_size=32, precision="fp16_amp"),
    "vgg16": Plan(dp_replicate=8, microbatch_size=16, num_microbatches=2, precision="fp32"),
    "resnet101": Plan(
        pp=4,
        dp_replicate=2,
        microbatch_size=8,
        num_microbatches=8,
        schedule="gpipe",
        recompute=Recompute.FULL,
        precision="fp32",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_no_faster_part_makes_a_network_slower(name: str) -> None:
    ours, chosen = images(name), NETWORKS[name]
    before = simulate(ours, chosen)
    assert min(before.breakdown.values()) >= 0.0
    assert min(before.memory.values()) >= 0.0
    for part, system in faster(ours.system, 4.0):
        after = simulate(on(ours, system), chosen)
        assert after.step_time <= before.step_time * (1.0 + SMALL), part
        assert after.peak_allocated == before.peak_allocated


@pytest.mark.parametrize("name", NETWORKS)
def test_more_and_larger_images_take_longer_and_more_memory(name: str) -> None:
    chosen = NETWORKS[name]
    whole = simulate(images(name), chosen)
    larger = simulate(images(name, 320), chosen)
    more = simulate(images(name), replace(chosen, microbatch_size=2 * chosen.microbatch_size))
    for other in (larger, more):
        assert other.step_time > whole.step_time
        assert max(other.peak_allocated) > max(whole.peak_allocated)
    assert more.step_time <= 2.0 * whole.step_time * (1.0 + SMALL)


STEP = Estimate(9.0, 10.0, 12.0)


def trained(*, step: Estimate = STEP, computing: float = 0.8, **goal: object) -> TrainingRun:
    wanted = TrainingGoal(**{"tokens": 1e10, "usd_per_device_hour": 2.0, **goal})  # type: ignore[arg-type]
    run = training_run(job(), wanted, batch=512, step=step, computing=computing)
    assert run is not None
    return run


def figures(run: TrainingRun) -> tuple[Estimate, Estimate, Estimate, Estimate]:
    assert run.cost is not None
    assert run.energy is not None
    return (run.elapsed, run.device_hours, run.cost, run.energy)


def test_a_run_is_in_order_and_never_shorter_than_its_steps() -> None:
    run = trained()
    assert run.elapsed.value >= run.duration.value
    for low, value, high in figures(run):
        assert 0.0 < low <= value <= high


@pytest.mark.parametrize(
    "worse",
    [
        {"tokens": 1.1e10},
        {"step": Estimate(10.0, 11.0, 13.0)},
        {"failures": Failures(device_mtbf=Failures().device_mtbf / 20.0)},
        {"failures": Failures(restart_time=10.0 * Failures().restart_time)},
    ],
    ids=["tokens", "step", "failures", "restarts"],
)
def test_what_takes_longer_costs_more_of_everything(worse: dict[str, object]) -> None:
    usual, more = figures(trained()), figures(trained(**worse))  # type: ignore[arg-type]
    for before, after in zip(usual, more, strict=True):
        assert after.value > before.value


def test_price_and_power_move_what_they_are_part_of() -> None:
    usual = trained()
    dear, drawn = trained(usd_per_device_hour=3.0), trained(pue=1.5)
    assert usual.cost and dear.cost and usual.energy and drawn.energy  # noqa: PT018
    assert dear.cost.value == pytest.approx(1.5 * usual.cost.value)
    assert (dear.energy, dear.elapsed) == (usual.energy, usual.elapsed)
    assert drawn.energy.value == pytest.approx(1.5 / 1.1 * usual.energy.value)
    assert (drawn.cost, drawn.elapsed) == (usual.cost, usual.elapsed)
    idle = [trained(computing=share).energy for share in (1.0, 0.5, 0.0)]
    values = [energy.value for energy in idle if energy is not None]
    assert values == sorted(values, reverse=True)
    assert 0.0 < values[-1] < values[0]
