"""Chunks: the slower of device and host sets the time, and the slowest host of a group its pace."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster
from parsim.cluster.reader import load_catalog
from parsim.cost.hosts import input_copies, slowest_host
from parsim.cost.job import Job
from parsim.cost.software import software, with_switches
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.stage_passes import backward_times, forward_times
from parsim.cost.step.stages import layer_counts
from parsim.model.graph.build import build_graph
from parsim.model.graph.catalog import network
from parsim.plan import Plan, PlanTable
from tests.parsim.sim.conftest import gpt_job


def plans(*degrees: int) -> PlanTable:
    return PlanTable.of([Plan(tp=tp, microbatch_size=1, num_microbatches=1) for tp in degrees])


@pytest.fixture(scope="module")
def job() -> Job:
    return gpt_job()


def test_one_host_waits_for_nobody(job: Job) -> None:
    alone, two = slowest_host(job, plans(1, 2))
    assert alone == 1.0
    assert two == pytest.approx(1.0 + job.software.host_spread / math.sqrt(math.pi))


def test_equal_hosts_are_all_the_slowest(job: Job) -> None:
    equal = replace(job, software=replace(job.software, host_spread=0.0))
    assert slowest_host(equal, plans(1, 8)) == pytest.approx(1.0)


def test_a_device_that_waits_for_its_host_waits_for_the_slowest(job: Job) -> None:
    """Two groups with the same kernels differ by the spread alone: 1 + s E[max of 8]."""

    def seconds(spread: float) -> float:
        stack = replace(job.software, host_spread=spread, launch_cost=1.0)
        slow = replace(job, software=stack)
        table = plans(8)
        layers = LayerTable.of(slow, table)
        return float(
            forward_times(slow, layers, layer_counts(job.model, (job.model.num_layers,))).time[0, 0]
        )

    assert seconds(0.1) / seconds(0.0) == pytest.approx(1.0 + 0.1 * 1.4236, rel=1e-3)
    assert seconds(0.2) > seconds(0.1)


def test_a_host_that_waits_for_each_kernel_takes_turns_with_the_device(job: Job) -> None:
    """Both alike fast: the race takes 2^(1/8) of either, turns take both."""
    table = plans(1)
    counts = layer_counts(job.model, (job.model.num_layers,))

    def seconds(launch_cost: float, *, blocking: bool) -> float:
        stack = replace(job.software, launch_cost=launch_cost, microbatch_overhead=0.0)
        slow = replace(job, software=with_switches(stack, {"blocking_launches": blocking}))
        return float(forward_times(slow, LayerTable.of(slow, table), counts).time[0, 0])

    device = seconds(0.0, blocking=True)
    assert device == pytest.approx(seconds(0.0, blocking=False))
    host = seconds(1.0, blocking=True) - device  # a second for each launch
    alike = device / host
    assert seconds(alike, blocking=True) == pytest.approx(2.0 * device)
    assert seconds(alike, blocking=False) == pytest.approx(2.0**0.125 * device)


@pytest.mark.parametrize("runs_ahead", [False, True])
def test_a_host_that_runs_ahead_takes_up_micro_batches_beside_the_device(
    job: Job, runs_ahead: bool
) -> None:
    """0.5 ms of Python are added to long passes where the device waits for the host alone."""
    table = PlanTable.of([Plan(pp=2)])
    counts = layer_counts(job.model, (job.model.num_layers // 2,) * 2)

    def seconds(overhead: float) -> float:
        stack = replace(
            job.software, launch_cost=1e-9, microbatch_overhead=overhead, runs_ahead=runs_ahead
        )
        used = replace(job, software=stack)
        return float(forward_times(used, LayerTable.of(used, table), counts).time[0, 0])

    longer = seconds(1e-3) - seconds(0.0)
    assert longer == pytest.approx(0.0 if runs_ahead else 0.5e-3, abs=1e-5)


def test_a_host_copies_samples_to_all_of_its_devices_one_after_another() -> None:
    """32 images of 3 x 224 x 224 in fp32 for each of 8: 154 MB at 12 GB/s, 12.8 ms of a step."""
    cluster = Cluster(system=load_catalog().system("dgx-1v"), num_nodes=2)
    stack = software("mxnet-2016")
    images = Job(model=build_graph(network("alexnet")), cluster=cluster, software=stack)
    table = PlanTable.of([Plan(dp_replicate=16, microbatch_size=32, precision="fp32")])
    seconds = float(input_copies(images, table)[0])
    assert seconds == pytest.approx(8 * 32 * 3 * 224 * 224 * 4.0 / 12e9)

    def step(rate: float) -> float:
        made = replace(images, software=replace(stack, input_copy_rate=rate))
        layers, counts = (
            LayerTable.of(made, table),
            layer_counts(made.model, (made.model.num_layers,)),
        )
        passes = forward_times(made, layers, counts), backward_times(made, layers, counts)
        return sum(float(times.time[0, 0]) for times in passes)

    assert step(12e9) - step(0.0) == pytest.approx(seconds)
