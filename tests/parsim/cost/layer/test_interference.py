"""Compute beside a collective: what it loses, and that nothing is lost where nothing runs."""

from dataclasses import replace

import pytest

from parsim.cluster.hardware import Cluster, System
from parsim.cluster.reader import load_catalog
from parsim.cost.data.data_parallel import DataParallel
from parsim.cost.job import Job
from parsim.cost.layer.interference import (
    crowded_device,
    measured_loss,
    memory_share,
    speed_beside,
)
from parsim.cost.software import software
from parsim.cost.step.layer_table import LayerTable
from parsim.cost.step.step import step_costs
from parsim.model.reader import model_spec
from parsim.model.transformer import build_transformer
from parsim.plan import Plan, PlanTable

MODEL = build_transformer(model_spec("megatron-22b"))


def job_on(system: System, nodes: int = 1) -> Job:
    return Job(
        model=MODEL,
        cluster=Cluster(system=system, num_nodes=nodes),
        software=software("generic"),
    )


def speed(job: Job) -> float:
    table = PlanTable.of([Plan(dp_shard=8, zero_stage=3)])
    layers = LayerTable.of(job, table)
    return float(speed_beside(job.system, DataParallel.of(job, table).busbw, layers.kinds)[0])


def test_products_lose_the_channels() -> None:
    device = crowded_device(load_catalog().system("dgx-h100"))
    assert device.sm_count == 132 - 24
    assert device.peak_flops["bf16"] == pytest.approx(989e12 * 108 / 132)


def test_a_large_model_loses_about_the_channels_share() -> None:
    kept = speed(job_on(load_catalog().system("dgx-h100")))
    assert 0.70 < kept < 0.86  # 108 / 132 = 0.82 for products, less for norms


def test_fewer_channels_and_faster_memory_lose_less() -> None:
    system = load_catalog().system("dgx-a100")
    fewer = replace(system, channels=8)
    device = replace(system.device, memory_bandwidth=2.0 * system.device.memory_bandwidth)
    base = speed(job_on(system))
    assert speed(job_on(fewer)) > base
    assert speed(job_on(replace(system, device=device))) > base


def test_a_slow_network_takes_little_memory_bandwidth() -> None:
    job = job_on(load_catalog().system("dgx-a100"), nodes=8)
    table = PlanTable.of(
        [Plan(dp_shard=64, zero_stage=3), Plan(dp_shard=8, dp_replicate=8, zero_stage=3)]
    )
    across, inside = memory_share(job.system, DataParallel.of(job, table).busbw)
    assert inside < across < 1.0


def test_copies_on_other_nodes_are_reduced_at_the_networks_rate() -> None:
    job = job_on(load_catalog().system("dgx-a100"), nodes=8)
    across = DataParallel.of(job, PlanTable.of([Plan(tp=8, dp_replicate=8)])).busbw
    system = job.system
    assert 0.0 < float(across[0]) < system.intra.bandwidth / 4


def test_a_message_that_mostly_waits_takes_little_memory_bandwidth() -> None:
    job = job_on(load_catalog().system("dgx-a100"))
    data = DataParallel.of(job, PlanTable.of([Plan(dp_shard=8, zero_stage=3)]))
    small = replace(data, bucket=1e-5 * data.bucket)
    assert float(small.busbw[0]) < 0.2 * float(data.busbw[0])


def test_a_rank_alone_sends_nothing() -> None:
    job = job_on(load_catalog().system("dgx-a100"))
    assert DataParallel.of(job, PlanTable.of([Plan(tp=8)])).busbw == 0.0


def test_what_was_measured_takes_the_place_of_the_model() -> None:
    system = replace(load_catalog().system("dgx-a100"), interference=0.3)
    assert speed(job_on(system)) == 0.7


def test_links_slower_than_the_measured_ones_take_less_of_a_core() -> None:
    """Each byte takes as long: on links of a quarter of the rate a quarter of the share is lost."""
    base = load_catalog().system("dgx-a100")
    links = base.intra.bandwidth * base.intra.efficiency
    system = replace(base, interference=0.8, interference_rate=4.0 * links)
    assert measured_loss(system) == pytest.approx(0.2)
    assert measured_loss(replace(system, message_interference=0.4), messages=True) == 0.1
    assert measured_loss(system, messages=True) == pytest.approx(0.2)
    assert measured_loss(replace(system, interference_rate=0.5 * links)) == 0.8
    assert measured_loss(replace(system, interference_rate=None)) == 0.8
    assert measured_loss(base) is None


def test_nothing_is_late_without_a_reduction_beside_backward() -> None:
    job = job_on(load_catalog().system("dgx-a100"))
    plans = [
        Plan(dp_replicate=8, num_microbatches=4, overlap_grad_reduce=on) for on in (True, False)
    ]
    beside, after = (step_costs(job, PlanTable.of([plan])) for plan in plans)
    assert beside.late[0] > 0.0
    assert after.late[0] == 0.0
