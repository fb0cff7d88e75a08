"""Layers of images: passes by hand, layouts, synchronised statistics, what networks take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.job import Job
from parsim.cost.layer.kept.activations import whole_bytes
from parsim.cost.layer.layers import LayerCoster
from parsim.cost.layer.tensor_exchanges import statistics_messages
from parsim.cost.software import software
from parsim.errors import PlanError
from parsim.model.graph.build import build_graph
from parsim.model.graph.catalog import network
from parsim.model.graph.images import BatchNorm2d
from parsim.model.graph.record import INPUT
from parsim.model.graph.sketch import Sketch
from parsim.model.layer import Layer
from parsim.model.operators import Elementwise
from parsim.plan import Plan, PlanTable
from parsim.sim import simulate


def job_of(name: str, system: str = "dgx-1v", nodes: int = 1, **changes: object) -> Job:
    node = load_catalog().system(system)
    return Job(
        model=build_graph(network(name)),
        cluster=Cluster(system=node, num_nodes=nodes),
        software=replace(software("pytorch-ddp"), **changes),  # type: ignore[arg-type]
    )


def test_batch_norm_moves_eight_times_its_values() -> None:
    """(256, 64, 56, 56) in fp32: 8 x 205.5 MB; an A100 of 40 GB was measured to take 1.322 ms."""
    draw = Sketch("norm", (64, 56, 56))
    draw.node(BatchNorm2d(), "norm", INPUT)
    node = load_catalog().system("dgx-a100", "a100-sxm-40gb")
    job = Job(
        model=build_graph(draw.graph()),
        cluster=Cluster(system=node, num_nodes=1),
        software=software("pytorch-ddp"),
    )
    table = PlanTable.of([Plan(dp_replicate=8, microbatch_size=256, precision="fp32")])
    cost = LayerCoster(job, table).cost(job.model.layers[0])
    seconds = float(cost.forward.seconds[0] + cost.backward.seconds[0])
    bytes_moved = 8 * 205.5e6
    assert seconds == pytest.approx(bytes_moved / (1555e9 * 0.833), rel=0.01)
    assert seconds == pytest.approx(1.322e-3, rel=0.05)


def test_kept_bytes_of_resnet50() -> None:
    """256 images in mixed precision: 10.05 GiB, and 0.38 GiB of indices."""
    job = job_of("resnet50")
    table = PlanTable.of([Plan(dp_replicate=8, microbatch_size=256, precision="fp16_amp")])
    kept = sum(float(whole_bytes(layer, table)[0]) for layer in job.model.layers)
    assert kept == 256 * (2 * 21_075_968 + 8 * 200_704)


def test_layouts_are_turned_in_tf32_alone() -> None:
    job = job_of("resnet50", "dgx-a100")
    fast = job_of("resnet50", "dgx-a100", channels_last=("tf32",))
    plan = Plan(dp_replicate=8, microbatch_size=256, precision="tf32")
    slow, quick = simulate(job, plan).step_time, simulate(fast, plan).step_time
    assert 1.2 < slow / quick < 1.5
    half = replace(plan, precision="fp16_amp")
    again = job_of("resnet50", "dgx-a100", channels_last=())
    assert simulate(again, half).step_time > simulate(job, half).step_time


def statistics_of(layers: tuple[Layer, ...]) -> list[int]:
    return [
        op.statistics
        for layer in layers
        for op in layer.operators
        if isinstance(op, Elementwise) and op.statistics
    ]


def test_synchronised_statistics() -> None:
    """ResNet-50: 53 layers of 26,560 channels, 212 kB a direction; ResNet-101: 104, 52,672."""
    job = job_of("resnet50")
    channels = statistics_of(job.model.layers)
    assert (len(channels), sum(channels)) == (53, 26_560)
    deep = statistics_of(build_graph(network("resnet101")).layers)
    assert (len(deep), sum(deep)) == (104, 52_672)
    plan = Plan(dp_replicate=8, microbatch_size=256, precision="fp16_amp")
    table = PlanTable.of([replace(plan, sync_batch_norm=True)])
    ops = [op for layer in job.model.layers for op in layer.operators]
    norms = [op for op in ops if isinstance(op, Elementwise) and op.statistics]
    pairs = [statistics_messages(job, table, op) for op in norms]
    assert sum(float(summed.size[0]) for _, summed in pairs) == 8 * 26_560
    assert sum(float(first.size[0]) for first, _ in pairs) == 8 * 4 * (2 * 26_560 + 53)
    waits = sum(
        float(first.seconds(job.system)[0] + two.seconds(job.system)[0]) for first, two in pairs
    )
    apart, together = simulate(job, plan), simulate(job, replace(plan, sync_batch_norm=True))
    grown = 1.0 + job.software.spread_of_replicas("fp16", images=True) * 1.4236
    assert together.step_time - apart.step_time == pytest.approx(waits * grown, rel=0.03)


def test_nothing_can_be_split_over_tensor_ranks() -> None:
    with pytest.raises(PlanError, match="resnet50 has no matrices that tensor parallelism splits"):
        simulate(job_of("resnet50"), Plan(tp=8, microbatch_size=256, precision="fp16_amp"))


def test_pipeline_cuts_send_what_crosses_them() -> None:
    job = job_of("resnet50", schedules=("1f1b",))
    plan = Plan(pp=8, microbatch_size=32, num_microbatches=16, precision="fp32")
    even = simulate(job, plan)
    early = simulate(job, replace(plan, stage_layers=(1, 1, 1, 1, 1, 1, 1, 11)))
    assert early.step_time > even.step_time


def norm_values(images: int, device: str, cudnn: float) -> float:
    """Values that a normalisation of 56x56 moves for each of its own, both ways, under MXNet."""
    draw = Sketch("norm", (64, 56, 56))
    draw.node(BatchNorm2d(), "norm", INPUT)
    node = load_catalog().system("dgx-1v", device)
    job = Job(
        model=build_graph(draw.graph()),
        cluster=Cluster(system=node, num_nodes=1),
        software=replace(software("mxnet-2016"), cudnn=cudnn),
    )
    table = PlanTable.of([Plan(dp_replicate=8, microbatch_size=images, precision="fp32")])
    cost = LayerCoster(job, table).cost(job.model.layers[0])
    seconds = float(cost.forward.seconds[0] + cost.backward.seconds[0])
    moved = seconds * job.device.memory_bandwidth * job.device.memory_efficiency
    return moved / (4.0 * images * 64 * 56 * 56)


def test_channels_that_stay_on_the_chip_are_read_once() -> None:
    """From 32 images on, where library and device have it: 2.25 values ahead and 2.9 behind."""
    assert norm_values(32, "v100-sxm-16gb", 7.0) == pytest.approx(2.25 + 2.9, rel=0.03)
    assert norm_values(31, "v100-sxm-16gb", 7.0) == pytest.approx(8.0, rel=0.03)
    assert norm_values(32, "v100-sxm-16gb", 5.1) == pytest.approx(8.0, rel=0.03)
    assert norm_values(32, "k80", 7.0) == pytest.approx(8.0, rel=0.03)
