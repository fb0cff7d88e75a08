"""The guide: a row a family, speed-ups over one device, the recommendation and its reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parsim.arrays import Array
from parsim.cost.job import Job
from parsim.cost.kernel.convolutions import _time_of_sizes
from parsim.cost.kernel.gemm import body_time
from parsim.cost.step.plan_layers import _priced
from parsim.guide.compare import guide
from parsim.guide.families import families, one_device, with_batches
from parsim.guide.record import Guide
from parsim.model.networks import Convolution
from parsim.plan import Plan
from parsim.plan.strategies import ParameterServer
from parsim.scenario import load_scenario
from parsim.sim import simulate
from parsim.sim.recurrence.evaluate import Evaluation, evaluate
from tests.parsim.guide.guides import NAMES, RESNET, row


def test_there_is_a_row_for_each_family(resnet: Guide) -> None:
    assert tuple(each.name for each in resnet.rows) == NAMES
    assert [each.name for each in resnet.rows if not each.same_training] == [
        "asynchronous server",
        "local SGD",
    ]
    assert "matrices" in row(resnet, "tensor").reason
    hybrid = row(resnet, "hybrid").prediction  # stages and replicas: no product can be split
    assert hybrid is not None
    assert (hybrid.plan.tp, hybrid.plan.pp, hybrid.plan.dp) == (1, 2, 4)


def test_a_row_is_the_prediction_of_its_plan(resnet: Guide) -> None:
    job = load_scenario(RESNET).job
    for name in ("DDP", "parameter server", "pipeline"):
        prediction = row(resnet, name).prediction
        assert prediction is not None
        again = simulate(job, prediction.plan)
        assert again.step_time == prediction.step_time
        samples = row(resnet, name).samples_per_second
        assert samples == pytest.approx(2048 / again.step_time)


def test_a_slow_worker_is_slow_in_every_family() -> None:
    """Who waits for all loses the slow worker's time; one device is none of the slow ones."""
    changes = {
        "cluster.nodes": "8",
        "cluster.devices_per_node": "1",
        "cluster.network": "{nics_per_node: 1, nic_bandwidth: 10Gb/s}",
        "plan.dp": "8",
        "training.global_batch_size": "512",
        "training.precision": "fp32",
        "plan.microbatch_size": "64",
    }
    slow = {"jitter": "{slow_ranks: {0: 2.0}, speed_spread: 0.0, noise: 0.0, hiccups: 0.0}"}
    path = Path("scenarios/resnet50-dgx-1v.yaml")
    usual, slowed = (guide(load_scenario(path, {**changes, **more})) for more in ({}, slow))
    assert (
        row(slowed, "one device").samples_per_second == row(usual, "one device").samples_per_second
    )
    for name in ("DDP", "ZeRO / FSDP", "parameter server", "local SGD"):
        assert row(slowed, name).samples_per_second < 0.8 * row(usual, name).samples_per_second
    ddp = row(slowed, "DDP")
    assert ddp.limits.startswith("waiting for the slowest device")
    assert row(slowed, "asynchronous server").samples_per_second > ddp.samples_per_second


MACHINES = {
    "cluster": "{system: aws-p2-8xlarge, nodes: 4}",
    "training.global_batch_size": "2048",
    "training.precision": "fp32",
    "plan": "null",
    "search": "{}",
}


def test_servers_of_a_guide_are_those_of_frameworks() -> None:
    """32 K80 of four machines: TensorFlow measured 26.5 times one (tensorflow_benchmarks_2017)."""
    compared = guide(load_scenario(RESNET, MACHINES))
    served = row(compared, "parameter server")
    assert served.prediction is not None
    strategy = served.prediction.plan.strategy
    assert strategy == ParameterServer(node_sums=True, overlap=True)
    assert served.speed_up == pytest.approx(26.5, rel=0.1)


def test_a_saturated_queue_reads_well_in_a_sentence() -> None:
    compared = guide(load_scenario(RESNET, MACHINES | {"model": "{name: vgg16}"}))
    limits = row(compared, "asynchronous server").limits
    assert ", saturated (" in limits
    assert " is " not in limits


def test_a_recommended_layout_says_what_it_does_better() -> None:
    """VGG-16's linear layers hold 89 % of its gradients."""
    changes = {"model": "{name: vgg16}", "software": "pytorch-ddp", "plan": "null"}
    changes |= {"search": "{}", "training.precision": "fp32", "cluster.nodes": "1"}
    compared = guide(load_scenario(RESNET, changes))
    assert compared.chosen is not None
    assert compared.chosen.name == "layout"
    assert any(reason.startswith("layout: weights of large") for reason in compared.reasons)


def test_families_share_statistics_or_say_that_they_cannot() -> None:
    scenario = load_scenario(Path("scenarios/resnet18-small-cpu.yaml"))
    assert scenario.fixed_plan().sync_batch_norm
    compared = guide(scenario)
    ddp = row(compared, "DDP").prediction
    assert ddp is not None
    assert ddp.plan.sync_batch_norm
    for name in ("parameter server", "asynchronous server", "local SGD"):
        assert "sync_batch_norm=true" in row(compared, name).reason


def test_micro_batches_are_powers_of_two_that_divide_a_replicas_share() -> None:
    shapes = [(p.microbatch_size, p.num_microbatches) for p in with_batches(Plan(dp_shard=2), 24)]
    assert shapes == [(1, 12), (2, 6), (4, 3)]
    assert list(with_batches(Plan(dp_shard=5), 24)) == []


def test_one_device_is_the_first_of_the_cluster() -> None:
    job = load_scenario(RESNET).job
    alone = one_device(job)
    assert alone.cluster.num_devices == 1
    assert alone.cluster.device == job.cluster.device
    assert len(families(alone)) == len(NAMES)
    assert families(alone)[2].plans(alone, Plan()) == "there is one device"


def test_stages_are_cut_as_simulate_cuts_them(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "model: {name: llama3-8b}\ncluster: {system: dgx-h100, nodes: 1}\nsoftware: generic\n"
        "training: {global_batch_size: 8, precision: bf16}\n"
        "plan: {pp: 8, tp: 1, microbatch_size: 1, schedule: 1f1b}\n",
        encoding="utf-8",
    )
    scenario = load_scenario(file)
    assert scenario.plan is not None
    assert scenario.plan.stage_layers is not None
    guided = row(guide(scenario), "pipeline").prediction
    assert guided is not None
    assert guided.plan.label() == scenario.plan.label()
    assert guided.step_time == simulate(scenario.job, scenario.plan).step_time


def test_a_convolution_is_priced_once_for_all_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Families and their plans share a network; images of a micro-batch alone change its prices."""
    products: list[float] = []

    def counted(*args: Any) -> Array:
        products.append(args[1])
        return body_time(*args)

    monkeypatch.setattr("parsim.cost.kernel.convolutions.body_time", counted)
    for remembered in (_time_of_sizes, _priced):
        remembered.cache_clear()
    scenario = load_scenario(RESNET)
    guide(scenario)
    network = {
        op
        for kind in scenario.job.model.kinds
        for op in kind.operators
        if isinstance(op, Convolution)
    }
    directions = sum(3 if op.input_gradient else 2 for op in network)
    sizes = [1 << power for power in range(9)]  # 1 to the 256 images of a device
    assert len(products) == len(sizes) * directions


def test_software_that_is_not_said_is_every_stack_for_the_rows_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, Plan]] = []

    def counted(job: Job, plan: Plan) -> Evaluation:
        asked.append((job.software.id, plan))
        return evaluate(job, plan)

    monkeypatch.setattr("parsim.sim.plan_interval.evaluate", counted)
    scenario = load_scenario(RESNET, {"software": "generic"})
    rows = [each.prediction for each in guide(scenario).rows if each.prediction is not None]
    stacks = {name for name, _ in asked}
    assert len(stacks) > 1
    assert len(asked) <= len(rows) * len(stacks)
    assert all("any of the stacks" in each.interval.basis for each in rows)
    alone = simulate(scenario.job, rows[2].plan)
    assert rows[2].interval == alone.interval
