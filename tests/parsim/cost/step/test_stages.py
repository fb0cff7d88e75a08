"""Chunks: the slower of device and host sets the time, and the slowest host of a group its pace."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from parsim.cost.job import Job
from parsim.cost.step.stages import LayerTable, forward_times, layer_counts, slowest_host
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
        software = replace(job.software, host_spread=spread, launch_cost=1.0)
        slow = replace(job, software=software)
        table = plans(8)
        layers = LayerTable.of(slow, table)
        return float(
            forward_times(slow, layers, layer_counts(job.model, (job.model.num_layers,))).time[0, 0]
        )

    assert seconds(0.1) / seconds(0.0) == pytest.approx(1.0 + 0.1 * 1.4236, rel=1e-3)
    assert seconds(0.2) > seconds(0.1)
